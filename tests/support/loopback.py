"""TESTS: what tests with a gateway on loopback share: a port, the gateway's settings, a patient wait."""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import Callable

from labkit.gateway.config import GatewayConfig, token_hash

RUN_ID = "20261129-201202-b0dd88"


def free_port() -> int:
    """None that outgoing connections are given: who knocks at a dead gateway must not get its port."""
    while True:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", random.randrange(20_000, 32_000)))
            return probe.getsockname()[1]


def gateway_config(token: str, **changes: object) -> GatewayConfig:
    """A gateway with the rehearsal behind it, on a free port; changes: whatever the test is about."""
    port = changes.setdefault("port", free_port())
    settings = {
        "run_id": RUN_ID,
        "bind": "127.0.0.1",
        "provider": "rehearsal",
        "base_url": "",
        "key_env": "",
        "models": ("rehearsal",),
        "token_sha256": token_hash(token),
        "budget_usd": 1.0,
        "price_input_per_mtok": 0.10,
        "price_output_per_mtok": 0.20,
        "max_completion_tokens": 8192,
        "minutes": 3,
        "pages_base": f"http://127.0.0.1:{port}",
    }
    return GatewayConfig(**settings | changes)


def until(condition: Callable[[], object], seconds: float = 40.0) -> None:
    """Return once the condition holds; fail when it does not in that time."""
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not come to that"
        time.sleep(0.05)
