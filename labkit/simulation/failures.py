"""HOST: what the simulated provider sends in place of a reply, kind by kind; see script.TRANSPORT."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2

from harness.replies import ENDINGS, GATEWAY_ALONE
from labkit.simulation import wire
from labkit.simulation.agents import Said
from labkit.simulation.script import Fault

DRIP_SECONDS = 5.0
STATUS = {"rate_limit": 429, "server": 503, "refused": 400, "budget_exhausted": 402, "run_ended": 403}
RETRY_AFTER = 20.0  # seconds
NOBODY = ("unreachable", "outage")  # nothing was sent


def instead(fault: Fault, number: int, usage: dict | None) -> httpx2.Response:
    """The broken answer; raises the HTTP client's errors. usage: what an empty reply says it cost."""
    if fault.kind in STATUS:
        return _status(fault)
    made: dict[str, Callable[[], httpx2.Response]] = {
        "drip": lambda: response(200, _Drip()),
        "cut_stream": lambda: response(200, _Cut(_half(number))),
        "html": lambda: response(
            200, (fault.message or "<html><body>Bad gateway</body></html>").encode(), "text/html"
        ),
        "blank": lambda: response(200, b""),
        "in_body": lambda: as_json({"error": _in_body(fault)}),
        "empty": lambda: as_json(wire.completion(Said(""), number, "m", usage)),
        "no_choices": lambda: as_json(wire.completion(Said(""), number, "m", usage) | {"choices": []}),
    }
    if fault.kind == "reset":
        raise httpx2.ReadError(fault.message or "simulated: connection reset by peer")
    if fault.kind in NOBODY:
        raise httpx2.ConnectError(fault.message or "simulated: nobody answers")
    return made[fault.kind]()


def _status(fault: Fault) -> httpx2.Response:
    code = _code(fault)
    message = fault.message or f"simulated {fault.kind}"
    wait = fault.retry_after_seconds
    wait = RETRY_AFTER if wait is None and fault.kind == "rate_limit" else wait
    headers = {} if wait is None else {"Retry-After": f"{wait:g}"}
    return response(*wire.error(fault.status or STATUS[fault.kind], message, code), headers=headers)


def _code(fault: Fault) -> str:
    if fault.kind in ENDINGS:
        return fault.kind
    if fault.code in GATEWAY_ALONE:
        return fault.code
    return "" if fault.message else "simulated"


def _in_body(fault: Fault) -> Any:
    """message: the error object as JSON, or what it says."""
    try:
        return json.loads(fault.message)
    except ValueError:
        return {"code": fault.code, "message": fault.message or "simulated"}


def _half(number: int) -> bytes:
    whole = json.dumps(wire.completion(Said("cut in the mid"), number, "m", None)).encode()
    return whole[: len(whole) // 2]


def as_json(body: dict) -> httpx2.Response:
    return response(200, json.dumps(body).encode())


def response(
    status: int, body: Any, kind: str = "application/json", headers: dict[str, str] | None = None
) -> httpx2.Response:
    """body: bytes, or a stream of them."""
    told = {"Content-Type": kind, **(headers or {})}
    if isinstance(body, bytes):
        return httpx2.Response(status, headers=told, content=body)
    return httpx2.Response(status, headers=told, stream=body)


class _Cut(httpx2.AsyncByteStream):
    """The beginning of a body, and then the connection is gone."""

    def __init__(self, beginning: bytes) -> None:
        self.beginning = beginning

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.beginning
        raise httpx2.RemoteProtocolError("simulated: peer closed connection without sending complete body")


class _Drip(httpx2.AsyncByteStream):
    """Bytes that keep coming, so that no read ever times out, and never become a reply."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(DRIP_SECONDS)
            yield b" "
