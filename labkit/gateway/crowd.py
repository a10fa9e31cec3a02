"""HOST: what a guest gone wild may take of the gateway's process: connections, memory for bodies, log lines.

The page and the watchdog live in the same process: a guest must not keep a person from the stop button.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

import h11
from starlette.requests import ClientDisconnect
from starlette.types import Receive
from uvicorn.protocols.http.h11_impl import H11Protocol

from labkit.gateway.refusal import Refusal

MAX_BODY = 20 * 1024 * 1024
MOST_PARTS = 1_000_000  # lists and objects of one body: six times as many hold the process up for six seconds
MOST_WAITING = 256 << 20  # bytes of all bodies that are being read
MOST_CONNECTIONS = 256  # of one listener; a process may often have 1,024 files open, all told
HEAD_SECONDS = 75.0  # a request's head is here by then: nothing else ends a connection that says nothing
MOST_LINES, EACH = 200, 1000  # of one kind in the log; then one in a thousand


class Patient(H11Protocol):
    """uvicorn's protocol, but for connections that are too many and those on which no request comes."""

    _next_look: asyncio.TimerHandle | None = None
    _answered: object = None  # the request that was over at the last look; None: there was none yet

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
            return
        self._next_look = self.loop.call_later(HEAD_SECONDS, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        """Close where no request began since the last look. A running one takes the time it takes."""
        waits = self.conn.their_state is h11.IDLE and (self.cycle is None or self.cycle.response_complete)
        if waits and self.cycle is self._answered:
            self.transport.close()
            return
        self._answered = self.cycle if waits else None
        self._next_look = self.loop.call_later(HEAD_SECONDS, self._look)


class Bodies:
    """Reads bodies no further than the limits: a length header may lie, and many at once are much memory."""

    def __init__(self) -> None:
        self.waiting = 0  # bytes

    async def read(self, receive: Receive) -> bytes:
        """Refusal when this one, or all together, are too large. ClientDisconnect."""
        data, more = bytearray(), True  # no list of pieces: one of two bytes would take fifty
        try:
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    raise ClientDisconnect
                chunk, more = message.get("body", b""), message.get("more_body", False)
                data += chunk
                self.waiting += len(chunk)
                if len(data) > MAX_BODY:
                    raise Refusal(413, "bad_request", f"the body is larger than {MAX_BODY} bytes")
                if self.waiting > MOST_WAITING:
                    raise Refusal(503, "gateway_busy", "too many large requests at once")
            return _demand_few_parts(bytes(data))
        finally:
            self.waiting -= len(data)


def _demand_few_parts(data: bytes) -> bytes:
    if len(data) > MOST_PARTS and data.count(b"[") + data.count(b"{") > MOST_PARTS:
        raise Refusal(400, "bad_request", f"the body has more than {MOST_PARTS} lists and objects")
    return data


class Repeats(logging.Filter):
    """Lets the first lines of a kind through, then a few: the log must not fill the host's disk."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: Counter[tuple[str, str]] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        kind = (record.name, str(record.msg)[:100])
        self._counts[kind] += 1
        number = self._counts[kind]
        if number > MOST_LINES:
            record.msg = f"{record.msg} (no. {number} of its kind)"
        return number <= MOST_LINES or number % EACH == 0
