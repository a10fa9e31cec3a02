"""HOST: the rehearsal as an ASGI app in the OpenAI chat completions format, as strict as the real ones."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from labkit.gateway.config import GatewayConfig
from labkit.gateway.providers.rehearsal import digest, inspector
from labkit.gateway.providers.rehearsal import messages as reading
from labkit.gateway.providers.rehearsal.usage import CHARS_PER_TOKEN, Meter
from labkit.gateway.providers.rehearsal.worker import Worker

PIECE = 40  # characters in one chunk of a stream


class Rehearsal:
    """One run's scripted provider: who asks decides who answers."""

    def __init__(self, config: GatewayConfig, state_path: Path | None) -> None:
        self._latency = config.rehearsal_latency_seconds
        self._worker = Worker(config.pages_base.rstrip("/") + "/rehearsal/pages", state_path)
        self._meter = Meter(config.price_input_per_mtok, config.price_output_per_mtok)
        self._ids = itertools.count(1)

    async def complete(self, request: Request) -> Response:
        body = json.loads(await request.body())
        if flaw := reading.problem(body.get("messages")):
            return _bad_request(flaw)
        await asyncio.sleep(self._latency)
        completion = self._completion(body)
        if body.get("stream"):
            with_usage = bool((body.get("stream_options") or {}).get("include_usage"))
            return StreamingResponse(_chunks(completion, with_usage), media_type="text/event-stream")
        return JSONResponse(completion)

    def _completion(self, body: dict) -> dict:
        messages = body["messages"]
        tools = [] if body.get("tool_choice") == "none" else body.get("tools") or []
        message = self._message(body.get("user"), messages, tools)
        usage = self._meter.usage(body.get("user") or "worker", body.get("tools") or [], messages, message)
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        limit = body.get("max_completion_tokens")
        if limit and usage["completion_tokens"] > limit:
            message, finish = _cut(message, limit * CHARS_PER_TOKEN), "length"
            usage["completion_tokens"] = limit
            usage["total_tokens"] = usage["prompt_tokens"] + limit
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
        return {
            "id": f"rehearsal-{next(self._ids)}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": body.get("model"),
            "choices": [choice],
            "usage": usage,
        }

    def _message(self, purpose: str | None, messages: list[dict], tools: list[dict]) -> dict:
        given = reading.user_text(messages)
        if purpose == "inspector":
            return {"content": inspector.verdict(given)}
        if purpose == "digest":
            return {"content": digest.digest(given)}
        if purpose == "report" and not tools:
            return {"content": digest.report("\n".join(map(reading.text, messages[1:])))}
        return self._worker.reply(messages, tools)


def build(config: GatewayConfig, state_path: Path | None = None) -> Starlette:
    """The app. state_path: where the Worker's place in its script is kept; None keeps it in memory."""
    rehearsal = Rehearsal(config, state_path)
    return Starlette(routes=[Route("/v1/chat/completions", rehearsal.complete, methods=["POST"])])


def _bad_request(message: str) -> Response:
    return JSONResponse({"error": {"message": message, "type": "invalid_request_error", "code": None}}, 400)


def _cut(message: dict, characters: int) -> dict:
    """The message as a token limit leaves it: thought first, then a call with broken arguments."""
    content = message["content"][:characters]
    rest = characters - len(content)
    if rest <= 0 or not message.get("tool_calls"):
        return {"content": content}
    call = message["tool_calls"][0]
    function = {**call["function"], "arguments": call["function"]["arguments"][: rest // 2]}
    return {"content": content, "tool_calls": [{**call, "function": function}]}


async def _chunks(completion: dict, with_usage: bool) -> AsyncIterator[str]:
    """The completion as the events of a stream."""
    head = {key: completion[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    choice = completion["choices"][0]
    for delta in _deltas(choice["message"]):
        yield _event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield _event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    if with_usage:
        yield _event({**head, "choices": [], "usage": completion["usage"]})
    yield "data: [DONE]\n\n"


def _deltas(message: dict) -> list[dict]:
    content = message["content"]
    deltas: list[dict] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": content[i : i + PIECE]} for i in range(0, len(content), PIECE)]
    for index, call in enumerate(message.get("tool_calls") or []):
        arguments = call["function"]["arguments"]
        deltas.append(
            {"tool_calls": [{"index": index, **call, "function": {**call["function"], "arguments": ""}}]}
        )
        for i in range(0, len(arguments), PIECE):
            piece = {"arguments": arguments[i : i + PIECE]}
            deltas.append({"tool_calls": [{"index": index, "function": piece}]})
    return deltas


def _event(data: dict) -> str:
    return f"data: {json.dumps(data)}\n\n"
