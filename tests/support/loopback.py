"""TESTS: what tests with a gateway on loopback share: a port, the gateway's settings, a patient wait."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import socket
import time
from collections.abc import Callable, Iterator

from labkit.gateway.config import GatewayConfig, token_hash

RUN_ID = "20261129-201202-b0dd88"


def _ports() -> Iterator[int]:
    """Each once: what was given out may not be bound yet. Two workers of xdist have ranges of their own."""
    first, some = (20_000 if os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0" else 26_000), 6_000
    start = random.randrange(some)
    for number in itertools.count():
        yield first + (start + number) % some


_PORTS = _ports()


def free_port() -> int:
    """None that outgoing connections are given: who knocks at a dead gateway must not get its port."""
    for port in _PORTS:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("unreachable: there is always a next one")


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
