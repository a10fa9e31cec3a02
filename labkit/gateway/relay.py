"""HOST: passes chat completions to the provider, within the model list, the limits and the budget.

Replies and errors of the provider go back as they are (only the key is cut out should one quote it).
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator

import anyio
import httpx2
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from labkit.gateway import usage as usage_reader
from labkit.gateway.budget import Budget, Reservation
from labkit.gateway.config import GatewayConfig
from labkit.gateway.keys import redact
from labkit.gateway.providers import Provider
from labkit.gateway.usage import Usage

CALL_SECONDS = 900  # the guest gives up much earlier; this ends a call that nobody waits for
PASSED_HEADERS = ("content-type", "retry-after")
PURPOSES = ("worker", "inspector", "digest", "report")

# Fields that reach the provider. Others are refused: some buy things (plugins, n, fallback models).
FIELDS = frozenset(
    {"model", "messages", "tools", "tool_choice", "parallel_tool_calls", "response_format", "user"}
    | {"max_completion_tokens", "max_tokens", "temperature", "top_p", "frequency_penalty", "presence_penalty"}
    | {"stop", "seed", "stream", "stream_options", "reasoning", "reasoning_effort", "usage"}
)

log = logging.getLogger("labkit.gateway")


class Refusal(Exception):
    """The gateway will not pass this call on: an OpenAI-shaped error with a code the harness knows."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code

    def response(self) -> JSONResponse:
        error = {"message": str(self), "type": "lab_gateway", "code": self.code}
        return JSONResponse({"error": error}, self.status)


class Relay:
    """The way to the provider. One per gateway; `answer` may run for several calls at once."""

    def __init__(self, config: GatewayConfig, budget: Budget, provider: Provider) -> None:
        self.config = config
        self.budget = budget
        self.provider = provider

    async def answer(self, raw: bytes) -> Response:
        """Answer the body of one POST /v1/chat/completions. Raises Refusal before any money is spent."""
        body = self._prepared(raw)
        content = json.dumps(body, separators=(",", ":")).encode()
        purpose = body["user"] if body.get("user") in PURPOSES else "other"
        reservation = self.budget.reserve(purpose, body["model"], len(content), body["max_completion_tokens"])
        if reservation is None:
            raise Refusal(402, "budget_exhausted", self._budget_sentence())
        return await _Call(self, reservation).run(content, bool(body.get("stream")))

    def _budget_sentence(self) -> str:
        budget = self.budget
        return (
            f"the budget of ${self.config.budget_usd:.2f} does not hold this call: "
            f"${budget.spent:.4f} spent, ${budget.reserved:.4f} reserved"
        )

    def _prepared(self, raw: bytes) -> dict:
        """The body as it goes out: checked, with a token limit, and with usage asked for in streams."""
        body = _parsed(raw)
        if body["model"] not in self.config.models:
            raise Refusal(403, "model_not_allowed", f"this run may use {', '.join(self.config.models)} only")
        limit = self.config.max_completion_tokens
        asked = [body[name] for name in ("max_completion_tokens", "max_tokens") if body.get(name) is not None]
        if any(type(value) is not int or not 1 <= value <= limit for value in asked):
            raise Refusal(400, "bad_request", f"max_completion_tokens must be between 1 and {limit}")
        body["max_completion_tokens"] = min(asked, default=limit)
        if body.get("stream"):
            body["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
        return body


def _parsed(raw: bytes) -> dict:
    try:
        body = json.loads(raw, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Refusal(400, "bad_request", "the body is not JSON") from None
    if not isinstance(body, dict):
        raise Refusal(400, "bad_request", "the body is not a JSON object")
    if unknown := set(body) - FIELDS:
        raise Refusal(400, "bad_request", f"fields not passed on: {', '.join(sorted(unknown))[:200]}")
    if not isinstance(body.get("model"), str) or not isinstance(body.get("messages"), list):
        raise Refusal(400, "bad_request", "model must be a string and messages a list")
    if not isinstance(body.get("stream_options") or {}, dict):
        raise Refusal(400, "bad_request", "stream_options must be an object")
    return body


def _no_constant(name: str) -> float:
    raise ValueError(name)


class _Call:
    """One call under way: asks the provider, hands the reply through, settles exactly once."""

    def __init__(self, relay: Relay, reservation: Reservation) -> None:
        self.relay = relay
        self.reservation = reservation
        self.usage = Usage()
        self.started = time.monotonic()
        self.settled = False

    def settle(self, status: int | str) -> None:
        if not self.settled:
            self.settled = True
            seconds = time.monotonic() - self.started
            try:
                self.relay.budget.settle(self.reservation, status, self.usage, seconds)
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
            data = redact(await reply.aread(), self.relay.provider.key)
        finally:
            await reply.aclose()
        self.usage.read(usage_reader.parse(data))
        self.settle(reply.status_code)
        status = reply.status_code if not 300 <= reply.status_code < 400 else 502  # no redirect is followed
        return Response(data, status, headers=_headers(reply))

    def _streamed(self, reply: httpx2.Response) -> Response:
        return _Stream(self, reply)

    async def lines(self, reply: httpx2.Response) -> AsyncIterator[bytes]:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                async for line in _split_lines(reply.aiter_bytes()):
                    line = redact(line, self.relay.provider.key)
                    self.usage.read(usage_reader.stream_chunk(line))
                    yield line
            self.settle(reply.status_code)
        except (httpx2.HTTPError, TimeoutError) as error:
            # The guest sees a stream without its end, as it would from the provider itself.
            log.warning("request %d: stream cut: %s", self.reservation.id, error)


class _Stream(StreamingResponse):
    """Settles also when the guest hangs up, even before the first line was sent."""

    def __init__(self, call: _Call, reply: httpx2.Response) -> None:
        super().__init__(call.lines(reply), reply.status_code, headers=_headers(reply))
        self._call = call
        self._reply = reply

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._call.settle("cut")
            with anyio.CancelScope(shield=True):
                await self._reply.aclose()


async def _split_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes, cut after each line break: usage and key never straddle two pieces."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line + b"\n"
    if rest:
        yield rest


def _headers(reply: httpx2.Response) -> dict[str, str]:
    return {name: reply.headers[name] for name in PASSED_HEADERS if name in reply.headers}
