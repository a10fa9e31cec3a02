"""HOST: passes chat completions to the provider, within the model list, the limits and the budget.

Replies and errors of the provider go back as they are (only the key is cut out should one quote it).
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Coroutine

import anyio
import httpx2
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from labkit.gateway import shapes, witness
from labkit.gateway import usage as usage_reader
from labkit.gateway.budget import Budget, NoMoney, Reservation
from labkit.gateway.config import GatewayConfig
from labkit.gateway.keys import redact
from labkit.gateway.providers import Provider
from labkit.gateway.refusal import Refusal
from labkit.gateway.usage import Usage

MAX_REPLY = 32 << 20  # bytes: the longest reply of a model has some hundred thousand
MAX_LINE = 4 << 20  # bytes of one line of a stream
CALL_SECONDS = 900  # the guest gives up much earlier; this ends a call that nobody waits for
PASSED_HEADERS = ("content-type", "retry-after")
PURPOSES = ("worker", "inspector", "digest", "report")

log = logging.getLogger("labkit.gateway")


class Relay:
    """The way to the provider. One per gateway; `answer` may run for several calls at once."""

    def __init__(self, config: GatewayConfig, budget: Budget, provider: Provider) -> None:
        self.config = config
        self.budget = budget
        self.provider = provider

    def answer(self, raw: bytes, token: str = "") -> Coroutine[None, None, Response]:
        """Answer the body of one POST /v1/chat/completions. Raises Refusal before any money is spent.

        token: the run's, so that it can be left out of what is hashed, as the harness leaves it out.
        What is returned is to be awaited: its money is reserved. It holds nothing that was read from RAW.
        """
        body = self._prepared(raw)
        content = json.dumps(body, separators=(",", ":")).encode()
        purpose = body["user"] if body.get("user") in PURPOSES else "other"
        seen = {"messages": witness.messages_of(body, token)}
        try:
            reservation = self.budget.reserve(
                purpose, body["model"], len(content), body["max_completion_tokens"], seen
            )
        except NoMoney as error:
            raise Refusal(402, "budget_exhausted", str(error)) from None
        return _Call(self, reservation, token).run(content, bool(body.get("stream")))

    def _prepared(self, raw: bytes) -> dict:
        """The body as it goes out: checked, with a token limit, and with usage asked for in streams."""
        try:
            body = shapes.parsed(raw)
        except shapes.BadShape as error:
            raise Refusal(400, "bad_request", str(error)) from None
        if body["model"] not in self.config.models:
            raise Refusal(403, "model_not_allowed", f"this run may use {', '.join(self.config.models)} only")
        limit = self.config.max_completion_tokens
        asked = [body[name] for name in ("max_completion_tokens", "max_tokens") if body.get(name) is not None]
        thinking = (body.get("reasoning") or {}).get("max_tokens") or 1
        if any(type(value) is not int or not 1 <= value <= limit for value in [*asked, thinking]):
            raise Refusal(400, "bad_request", f"max_completion_tokens must be between 1 and {limit}")
        body["max_completion_tokens"] = min(asked, default=limit)
        if body.get("max_tokens") is not None:
            body["max_tokens"] = body["max_completion_tokens"]
        if body.get("usage") is not None:
            body["usage"] = {"include": True}  # without it some providers leave out what the call costs
        if body.get("stream"):
            body["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
        return body


class _Call:
    """One call under way: asks the provider, hands the reply through, settles exactly once."""

    def __init__(self, relay: Relay, reservation: Reservation, token: str) -> None:
        self.relay = relay
        self.reservation = reservation
        self.usage = Usage()
        self.completion = witness.Completion(token)
        self.started = time.monotonic()
        self.settled = False

    def settle(self, status: int | str) -> None:
        if not self.settled:
            self.settled = True
            seconds = time.monotonic() - self.started
            try:
                said = self.completion.summary()
                self.relay.budget.settle(self.reservation, status, self.usage, seconds, said)
            except OSError as error:  # the reply is paid for: hand it on; the call counts as lost on restart
                log.error("request %d: cannot be written down: %s", self.reservation.id, error)

    async def run(self, content: bytes, stream: bool) -> Response:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                reply = await self.relay.provider.send(content)
                if stream and reply.status_code < 400:
                    return self._streamed(reply)
                return await self._whole(reply)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            self.settle("unreachable")
            return self._failed(502, "provider_unreachable", error)
        except (httpx2.HTTPError, TimeoutError) as error:
            self.settle("cut")
            code = "provider_timeout" if isinstance(error, (TimeoutError, httpx2.TimeoutException)) else "cut"
            return self._failed(504 if code == "provider_timeout" else 502, code, error)
        except BaseException:
            self.settle("lost")
            raise

    def _failed(self, status: int, code: str, error: Exception) -> Response:
        log.warning("request %d: %s: %s", self.reservation.id, code, error)
        message = f"provider {self.relay.config.provider} gave no reply ({type(error).__name__})"
        return Refusal(status, code, message).response()

    async def _whole(self, reply: httpx2.Response) -> Response:
        try:
            data = redact(b"".join([piece async for piece in _bounded(reply)]), self.relay.provider.key)
        finally:
            await reply.aclose()
        self._read(usage_reader.parse(data))
        self.settle(reply.status_code)
        status = reply.status_code if not 300 <= reply.status_code < 400 else 502  # no redirect is followed
        return Response(data, status, headers=_headers(reply, self.relay.provider.key))

    def _read(self, reply: object) -> None:
        self.usage.read(reply)
        self.completion.read(reply)

    def _streamed(self, reply: httpx2.Response) -> Response:
        return _Stream(self, reply)

    async def lines(self, reply: httpx2.Response) -> AsyncIterator[bytes]:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                async for piece in _whole_lines(_bounded(reply)):
                    piece = redact(piece, self.relay.provider.key)
                    for line in piece.split(b"\n"):
                        self._read(usage_reader.stream_chunk(line))
                    yield piece
            self.settle(reply.status_code)
        except (httpx2.HTTPError, TimeoutError) as error:
            # The guest sees a stream without its end, as it would from the provider itself.
            log.warning("request %d: stream cut: %s", self.reservation.id, error)


class _Stream(StreamingResponse):
    """Settles also when the guest hangs up, even before the first line was sent."""

    def __init__(self, call: _Call, reply: httpx2.Response) -> None:
        headers = _headers(reply, call.relay.provider.key)
        super().__init__(call.lines(reply), reply.status_code, headers=headers)
        self._call = call
        self._reply = reply

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._call.settle("cut")
            with anyio.CancelScope(shield=True):
                await self._reply.aclose()


async def _bounded(reply: httpx2.Response) -> AsyncIterator[bytes]:
    """The body, no further than a reply can be."""
    size = 0
    async for piece in reply.aiter_bytes():
        if (size := size + len(piece)) > MAX_REPLY:
            raise httpx2.DecodingError(f"the reply is larger than {MAX_REPLY} bytes")
        yield piece


async def _whole_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes, cut after line breaks only: usage and key never straddle two pieces."""
    rest = bytearray()
    async for chunk in chunks:
        end = chunk.rfind(b"\n") + 1
        if end:
            yield bytes(rest) + chunk[:end]
            rest.clear()
        rest += chunk[end:]
        if len(rest) > MAX_LINE:
            raise httpx2.DecodingError(f"a line of the stream is longer than {MAX_LINE} bytes")
    if rest:
        yield bytes(rest)


def _headers(reply: httpx2.Response, key: str) -> dict[str, str]:
    passed = {name: reply.headers[name] for name in PASSED_HEADERS if name in reply.headers}
    return {
        name: redact(value.encode("latin-1", "replace"), key).decode("latin-1")
        for name, value in passed.items()
    }
