"""TESTS: a push goes past the framework; to who asks there is no difference."""

from __future__ import annotations

import asyncio
import json

import pytest
from gateway_in_process import GUEST, TOKEN, InProcess, ScriptedProvider, answer


@pytest.fixture
def gateway(tmp_path, make_config) -> InProcess:
    return InProcess(tmp_path / "run", make_config(), ScriptedProvider(lambda body: answer()))


def asked(
    gateway: InProcess, headers: list[tuple[bytes, bytes]], *parts: dict, method: str = "POST"
) -> list[dict]:
    """What the app sends. parts: what the server gives it of the body, one after the other."""
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": "/v1/events",
        "raw_path": b"/v1/events",
    }
    scope |= {
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": headers,
        "client": (GUEST, 4),
    }
    sent, left = [], iter(parts)

    async def call() -> None:
        async def receive() -> dict:
            return next(left)

        async def send(message: dict) -> None:
            sent.append(message)

        await gateway.app({**scope, "server": ("gateway", 80)}, receive, send)

    asyncio.run(call())
    return sent


def token(word: str = TOKEN) -> tuple[bytes, bytes]:
    return b"authorization", f"Bearer {word}".encode()


def whole(gateway: InProcess, *rows: dict) -> dict:
    body = json.dumps({"run_id": gateway.config.run_id, "events": rows}).encode()
    return {"type": "http.request", "body": body, "more_body": False}


def test_a_push_in_pieces_is_one_push(gateway, event):
    body = whole(gateway, event(1), event(2))["body"]
    pieces = [{"type": "http.request", "body": bytes([byte]), "more_body": True} for byte in body]
    sent = asked(gateway, [token()], *pieces, {"type": "http.request"})
    assert [message.get("status") for message in sent] == [200, None]
    assert sent[1]["body"] == b'{"watermark":2}' and (b"content-length", b"15") in sent[0]["headers"]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD"])
def test_another_method_is_not_allowed_and_told_which_is(gateway, method, event):
    sent = asked(gateway, [token()], whole(gateway, event(1)), method=method)
    assert sent[0]["status"] == 405 and (b"allow", b"POST") in sent[0]["headers"]
    assert gateway.ledger.watermark == 0


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [token("other")],
        [token("other"), token()],
        [(b"authorization", b"\xff\xfe")],
        [(b"authorization", b"")],
    ],
)
def test_without_the_token_first_of_all_nothing_is_read(gateway, headers, event):
    sent = asked(gateway, headers)  # there is no body to be had: who asks for one fails
    assert sent[0]["status"] == 401 and json.loads(sent[1]["body"])["error"]["code"] == "bad_token"
    assert gateway.app.state.refusals == {"bad_token": 1}


def test_a_guest_that_hangs_up_in_its_push_leaves_nothing(gateway, event):
    half = {"type": "http.request", "body": whole(gateway, event(1))["body"][:-9], "more_body": True}
    assert asked(gateway, [token()], half, {"type": "http.disconnect"})[0]["status"] == 400
    assert gateway.ledger.watermark == 0
    assert asked(gateway, [token()], whole(gateway, event(1)))[0]["status"] == 200


@pytest.mark.parametrize("quiet", [b"7", b"\xb2", b"-1", b"1" * 40])
def test_a_push_is_a_sign_of_life_whatever_it_says_of_the_loop(gateway, quiet, event):
    assert asked(gateway, [token(), (b"lab-quiet", quiet)], whole(gateway, event(1)))[0]["status"] == 200
    signs = gateway.app.state.signs
    assert signs.heard_at is not None and (signs.loop_at is not None) == (quiet == b"7")
