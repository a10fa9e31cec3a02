"""TESTS: calls under way hold their bodies; all of them together hold no more than the gateway allows."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import Awaitable, Callable

import httpx2
import pytest
from gateway_in_process import GUEST, TOKEN, InProcess, answer

from labkit.gateway import crowd

MEGABYTE = 1 << 20
Post = Callable[..., Awaitable[httpx2.Response]]


class Thinking(httpx2.AsyncByteStream):
    """A streamed reply that comes when its provider has thought."""

    def __init__(self, thought: asyncio.Event) -> None:
        self.thought = thought

    async def __aiter__(self):
        await self.thought.wait()
        yield b"data: [DONE]\n\n"


class Thinker:
    """A provider that answers, or goes on after its head, when `thought` is set. Keeps no body."""

    key = "sk-test-key-0123456789"

    def __init__(self) -> None:
        self.asked, self.thought = asyncio.Event(), asyncio.Event()

    async def send(self, content: bytes) -> httpx2.Response:
        self.asked.set()
        if json.loads(content).get("stream"):
            return httpx2.Response(200, stream=Thinking(self.thought))
        await self.thought.wait()
        return answer()


def talk(folder, config, script: Callable[[Post, Thinker], Awaitable[None]]) -> None:
    """Run SCRIPT with a way to post bodies as the guest, several at once."""

    async def within() -> None:
        thinker = Thinker()
        gateway = InProcess(folder, config, thinker)
        transport = httpx2.ASGITransport(gateway.app, client=(GUEST, 40000))
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://gateway", headers=headers
        ) as http:
            async with asyncio.timeout(120):  # s: a call that was let in waits for ever
                await script(lambda body: http.post("/v1/chat/completions", content=body), thinker)

    asyncio.run(within())


def chat(text: str, **changes: object) -> bytes:
    body = {"model": "test/model", "messages": [{"role": "user", "content": text}]}
    return json.dumps(body | changes).encode()


@pytest.fixture
def paid(make_config):
    return make_config(provider="paid", base_url="http://provider.invalid/v1", budget_usd=1000.0)


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_counts_among_the_bodies_until_it_is_answered(tmp_path, paid, monkeypatch, stream):
    """A guest may have many large ones wait for a provider at the same time."""
    monkeypatch.setattr(crowd, "MOST_WAITING", 3 * MEGABYTE)
    large = chat("x" * 2 * MEGABYTE, stream=stream)

    async def script(post, thinker):
        first = asyncio.create_task(post(large))
        await thinker.asked.wait()
        refused = await post(large)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "gateway_busy")
        thinker.thought.set()
        assert (await first).status_code == 200
        assert (await post(large)).status_code == 200

    talk(tmp_path / "run", paid, script)


def test_calls_that_are_refused_leave_room_for_others(tmp_path, paid, monkeypatch):
    monkeypatch.setattr(crowd, "MOST_WAITING", 3 * MEGABYTE)

    async def script(post, thinker):
        thinker.thought.set()
        for _ in range(3):
            assert (await post(chat("x" * 2 * MEGABYTE, n=2))).status_code == 400
        assert (await post(chat("x" * 2 * MEGABYTE))).status_code == 200

    talk(tmp_path / "run", paid, script)


def test_a_call_that_waits_for_its_provider_holds_nothing_that_was_read_from_its_body(tmp_path, paid):
    """A list of a few bytes takes sixty once it is read."""
    function = {"name": "f", "parameters": {"a": [[]] * 200_000}}
    body = chat("x", tools=[{"type": "function", "function": function}])

    async def script(post, thinker):
        tracemalloc.start()
        try:
            call = asyncio.create_task(post(body))
            await thinker.asked.wait()
            await asyncio.sleep(0)
            assert tracemalloc.get_traced_memory()[0] < 8 * len(body)
        finally:
            tracemalloc.stop()
        thinker.thought.set()
        assert (await call).status_code == 200

    talk(tmp_path / "run", paid, script)
