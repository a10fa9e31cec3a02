"""TESTS: a whole gateway without process or port: real app, ledger, budget, relay; a provider in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from labkit.gateway import app
from labkit.gateway.budget import Budget
from labkit.gateway.config import GatewayConfig
from labkit.gateway.ledger import Ledger
from labkit.gateway.relay import Relay

TOKEN = "run-token-of-this-test"
GUEST = "192.168.150.17"


@dataclass
class ScriptedProvider:
    """Answers as `reply` says and keeps every body it was sent. `reply` may raise what a network raises."""

    reply: Callable[[dict], httpx2.Response]
    key: str = "sk-test-key-0123456789"
    seen: list[dict] = field(default_factory=list)

    async def send(self, content: bytes) -> httpx2.Response:
        self.seen.append(json.loads(content))
        return self.reply(self.seen[-1])


def answer(
    cost: float | None = 0.0001, text: str = "hi", prompt: int = 10, completion: int = 5
) -> httpx2.Response:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion}
    usage |= {} if cost is None else {"cost": cost}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return httpx2.Response(200, json={"id": "gen", "choices": [choice], "usage": usage})


@dataclass
class InProcess:
    """One gateway in a folder. `restart` forgets everything that is not on the disk."""

    folder: Path
    config: GatewayConfig
    provider: ScriptedProvider

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.restart()

    def restart(self) -> None:
        self.ledger = Ledger(self.folder, self.config.run_id, self.config.nonce, self.config.boot_id)
        self.budget = Budget(self.folder, self.config, self.ledger)
        relay = Relay(self.config, self.budget, self.provider)  # type: ignore[arg-type]
        self.app = app.build(self.folder, self.config, self.ledger, relay)

    def post(self, path: str, body: object, source: str = GUEST, token: str = TOKEN) -> httpx2.Response:
        """One call as from `source`; body: an object, or bytes as they are."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()

        async def call() -> httpx2.Response:
            transport = httpx2.ASGITransport(self.app, client=(source, 40000))
            headers = {"authorization": f"Bearer {token}"}
            async with httpx2.AsyncClient(
                transport=transport, base_url="http://gateway", headers=headers
            ) as client:
                return await client.post(path, content=content)

        return asyncio.run(call())

    def chat(self, **changes: object) -> httpx2.Response:
        body = {"model": "test/model", "messages": [{"role": "user", "content": "hello"}], "user": "worker"}
        return self.post("/v1/chat/completions", body | changes)

    def requests(self) -> list[dict]:
        return [json.loads(line) for line in (self.folder / "requests.jsonl").read_text().splitlines()]
