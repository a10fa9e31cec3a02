"""HOST: what a guest gone wild may take of the gateway's process: connections, memory for bodies, log lines.

The page and the watchdog live in its only thread: what takes long here keeps a person from the stop button
meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

import h11
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from labkit.gateway.refusal import Refusal

MAX_BODY = 20 * 1024 * 1024
MOST_PARTS = 1_000_000  # lists and objects of one body: six times as many hold the process up for six seconds
MOST_WAITING = 128 << 20  # bytes of all bodies that are being read or worked on
MOST_CONNECTIONS = 256  # of one listener; a process may often have 1,024 files open, all told
MOST_OF_ONE = 64  # connections of one address among them; a session has five or so
HEAD_SECONDS = 75.0  # a head, and then its body, is here by then or by twice that; nothing else ends the wait
UNREAD_SECONDS = 1.0  # for the rest of a body that was answered before it was here
MOST_HEAD, MOST_HEAD_LINES = 16 << 10, 100  # bytes and lines of a request's head
MOST_LINES, EACH = 200, 1000  # of one kind in the log; then one in a thousand


class Brief(h11.Connection):
    """h11 without what costs it much for little: bodies in chunks (of one byte each), and endless heads."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        if self.their_state is h11.IDLE:
            _demand_short_head(self.trailing_data[0])
        event = super().next_event()
        if type(event) is h11.Request and any(name == b"transfer-encoding" for name, _ in event.headers):
            raise h11.RemoteProtocolError("a body comes with its length here, not in chunks", 411)
        return event


def _demand_short_head(data: bytes) -> None:
    """Asked before h11 reads it: all that came at once, however much, would be parsed at once."""
    head, end, _ = data[:MOST_HEAD].partition(b"\r\n\r\n")
    if (len(data) > MOST_HEAD and not end) or head.count(b"\n") > MOST_HEAD_LINES:
        raise h11.RemoteProtocolError("the head of the request is too long", 431)


class Patient(H11Protocol):
    """uvicorn's protocol, but for connections that are too many, those on which no request comes to its end,
    and those whose request was answered before it was here."""

    _next_look: asyncio.TimerHandle | None = None
    _heard: object = (None, h11.IDLE)  # the request at the last look, if something of one was still to come
    _began = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.conn = Brief(h11.SERVER, MOST_HEAD)
        self._began = self.loop.time()
        self._make_room()
        self._next_look = self.loop.call_later(HEAD_SECONDS, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        unread, answered = self.conn.their_state is h11.SEND_BODY, self.cycle
        super().on_response_complete()
        if unread:
            self.loop.call_later(UNREAD_SECONDS, self._close_unread, answered)

    def _close_unread(self, answered: object) -> None:
        if self.cycle is answered and self.conn.their_state is h11.SEND_BODY:
            self.transport.close()

    def _make_room(self) -> None:
        """The oldest connection that has still something to say goes: whoever comes anew may be a person."""
        address = (self.client or ("",))[0]
        crowd = [one for one in self.connections if (one.client or ("",))[0] == address]
        if len(crowd) <= MOST_OF_ONE:
            crowd = list(self.connections)
            if len(crowd) <= MOST_CONNECTIONS:
                return
        waiting = (one for one in crowd if one is not self and one._waits())
        gone = min(waiting, key=lambda one: one._began, default=self)
        self.connections.discard(gone)  # it is still there until the loop comes round
        gone.transport.abort()

    def _waits(self) -> bool:
        """For the client: for a request, or for the rest of one. While it is answered it takes its time."""
        if self.conn.their_state is h11.SEND_BODY or self.transport.is_closing():
            return True
        return self.conn.their_state is h11.IDLE and (self.cycle is None or self.cycle.response_complete)

    def _look(self) -> None:
        """Close where nothing has begun or ended since the last look."""
        heard = (self.cycle, self.conn.their_state) if self._waits() else None
        if heard is not None and heard == self._heard:
            self.transport.abort()
            return
        self._heard = heard
        self._next_look = self.loop.call_later(HEAD_SECONDS, self._look)


class Bodies:
    """Reads bodies no further than the limits: a length header may lie, and many at once are much memory."""

    def __init__(self) -> None:
        self.waiting = 0  # bytes

    async def read(self, receive: Receive) -> bytes:
        """Refusal when this one, or all together, are too large. ClientDisconnect.

        What is returned counts until it is given to `done`.
        """
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
        except BaseException:
            self.done(len(data))
            raise

    def done(self, size: int) -> None:
        """A body of so many bytes is held no longer."""
        self.waiting -= size

    def until_answered(self, size: int, response: Response) -> Response:
        """RESPONSE, after which a body of so many bytes is held no longer."""
        return _Last(response, lambda: self.done(size))


class _Last(Response):
    """Another response, and something to do when it is told, or when nobody hears it any more."""

    def __init__(self, response: Response, then: Callable[[], None]) -> None:
        self._response, self._then = response, then

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._response(scope, receive, send)
        finally:
            self._then()


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
