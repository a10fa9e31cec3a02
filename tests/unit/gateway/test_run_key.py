"""TESTS: a key of the run's own: made with a limit, used, revoked. The provider is a scripted stand-in."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from labkit.errors import LabError
from labkit.gateway import keys, run_key

MANAGER = "sk-management-3c1f"


@dataclass
class Provider:
    """Keeps keys as OpenRouter's documents say, and answers chat completions with any of them."""

    url: str = ""
    keys: dict[str, dict] = field(default_factory=dict)
    used: list[str] = field(default_factory=list)
    broken: bool = False
    usage: float = 0.0125

    def handle(self, handler: BaseHTTPRequestHandler) -> tuple[int, dict]:
        length = int(handler.headers.get("content-length") or 0)
        body = json.loads(handler.rfile.read(length) or b"{}")
        token = handler.headers["authorization"].removeprefix("Bearer ")
        if handler.path.endswith("/chat/completions"):
            self.used.append(token)
            choice = {"message": {"role": "assistant", "content": f"hi {token}"}, "finish_reason": "stop"}
            return 200, {"choices": [choice], "usage": {"cost": self.usage}}
        if token != MANAGER or self.broken:
            return 401, {"error": {"message": "no"}}
        name = handler.path.rpartition("/")[2]
        if handler.command == "POST":
            made = {
                "hash": f"hash-{len(self.keys)}",
                "limit": body["limit"],
                "name": body["name"],
                "usage": self.usage,
            }
            self.keys[made["hash"]] = made
            return 201, {"data": made, "key": f"sk-run-key-{made['hash']}"}
        if handler.command == "GET":
            return 200, {"data": self.keys[name]}
        self.keys[name]["deleted"] = True
        return 200, {"deleted": True}


@contextlib.contextmanager
def serving() -> Iterator[Provider]:
    state = Provider()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            status, body = state.handle(self)
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = answer  # noqa: N815 - the names are http.server's

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}/v1"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield state
    server.shutdown()
    server.server_close()


@pytest.fixture
def provider() -> Iterator[Provider]:
    with serving() as state:
        yield state


@pytest.fixture
def paid(provider, monkeypatch) -> dict:
    monkeypatch.setenv("LAB_TEST_KEY", "sk-the-accounts-own-key")
    monkeypatch.setenv("LAB_TEST_MANAGER", MANAGER)
    return {
        "provider": "paid",
        "base_url": provider.url,
        "key_env": "LAB_TEST_KEY",
        "management_key_env": "LAB_TEST_MANAGER",
        "budget_usd": 2.5,
    }


def test_the_run_calls_with_its_own_key_limited_to_its_budget_and_the_key_is_gone_afterwards(
    run_gateway, provider, paid
):
    running = run_gateway(**paid)
    reply = running.chat()
    assert "hi [key]" in reply.text, "the run's key is cut out of replies as well"
    running.stop()
    (key,) = provider.keys.values()
    assert (key["limit"], key["deleted"]) == (2.5, True)
    assert provider.used == ["sk-run-key-hash-0"]
    assert not (running.folder / run_key.FILE_NAME).exists()
    notes = [json.loads(line) for line in (running.folder / "ledger.jsonl").read_bytes().splitlines()]
    bill = next(note["body"] for note in notes if note["kind"] == "bill")
    assert bill == {"hash": "hash-0", "usd": 0.0125, "revoked": True}
    for secret in (b"sk-run-key", MANAGER.encode(), b"sk-the-accounts"):
        assert secret not in running.everything_written()


def test_a_gateway_that_was_killed_leaves_a_key_that_the_next_one_revokes(run_gateway, provider, paid):
    running = run_gateway(**paid)
    running.chat()
    running.kill()
    running.start()
    first, second = provider.keys.values()
    assert first["deleted"] and not second.get("deleted")
    assert second["limit"] == pytest.approx(2.5 - 0.0125)


def test_a_provider_that_makes_no_key_ends_the_start_in_words(run_gateway, provider, paid):
    provider.broken = True
    with pytest.raises(LabError, match="makes no key for the run"):
        run_gateway(**paid)


def test_without_the_management_key_in_the_environment_the_start_is_refused(run_gateway, paid, monkeypatch):
    monkeypatch.delenv("LAB_TEST_MANAGER")
    with pytest.raises(LabError, match="LAB_TEST_MANAGER is not set"):
        run_gateway(**paid)


def test_a_key_that_cannot_be_revoked_is_said_and_kept_in_mind(tmp_path, provider, paid, make_config, caplog):
    notes = []

    async def go() -> None:
        config = make_config(**paid)
        async with run_key.held(
            tmp_path, config, "other", 1.0, lambda kind, **facts: notes.append((kind, facts))
        ):
            provider.broken = True

    asyncio.run(go())
    assert notes[-1] == ("bill", {"hash": "hash-0", "usd": None, "revoked": False})
    assert (tmp_path / run_key.FILE_NAME).exists() and "was not revoked" in caplog.text


def test_off_by_default_the_accounts_own_key_is_used(run_gateway, provider, paid):
    running = run_gateway(**paid | {"management_key_env": ""})
    running.chat()
    assert provider.used == ["sk-the-accounts-own-key"] and provider.keys == {}


def test_a_log_line_hides_every_key_that_became_known():
    import logging

    formatter = keys.RedactingFormatter("sk-first-key-aaaa")
    formatter.also_hide("sk-second-key-bbbb")
    record = logging.LogRecord("x", logging.INFO, "x", 1, "sk-first-key-aaaa sk-second-key-bbbb", (), None)
    assert formatter.format(record).endswith("[key] [key]")
