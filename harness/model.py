"""GUEST: the only file that talks to a model: one deadline a call, own retries, every attempt a row."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from harness.clock import Clock
from harness.errors import EndRun, Interrupted, ModelError, NoMoney
from harness.money import Purse, Usage
from harness.settings import Settings
from harness.telemetry import events
from harness.telemetry.recorder import Recorder

OUTAGES = ("rate_limit", "server", "connection")  # waited out and not charged to the run
ODD_REPLIES = ("deadline", "empty", "html", "in_body_error", "malformed")  # tried again a few times
ODD_REPLY_ATTEMPTS = 4
FIRST_BACKOFF, LONGEST_BACKOFF = 0.25, 60.0  # seconds
TICK = 0.2  # seconds between looks at the stop flag
_ENDINGS = {"budget_exhausted": "budget exhausted", "run_ended": "wall limit reached"}


@dataclass(frozen=True)
class ToolCall:
    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Reply:
    """One usable reply. `cut`: the token limit ended it, so none of its tool calls may be run."""

    text: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str
    usage: Usage
    cost: float | None

    @property
    def cut(self) -> bool:
        return self.finish_reason == "length"


@dataclass
class _Failure(Exception):
    kind: str
    text: str
    usage: Usage = field(default_factory=Usage)
    retry_after: float = 0.0
    billed: bool = True  # False: surely no money was taken


class Model:
    """Chat completions through the gateway. Not safe for more than one thread."""

    def __init__(
        self, settings: Settings, recorder: Recorder, clock: Clock, purse: Purse, stop: threading.Event
    ) -> None:
        self.settings, self.recorder = settings, recorder
        self.clock, self.purse, self.stop = clock, purse, stop
        self.final = False  # set by the loop: the final phase may spend the report's reserve
        self._loop = asyncio.new_event_loop()
        self._client: Any = None
        self._loading = threading.Thread(target=_import_openai, daemon=True)
        self._loading.start()  # importing the package takes 12-15 s in an emulated guest

    def ready(self) -> None:
        """Wait until the client can be used."""
        self._loading.join()

    def ask(
        self,
        purpose: str,
        messages: list[dict],
        tools: list[dict] | None = None,
        deadline: float | None = None,
        patience: float = 3600.0,
        model: str | None = None,
    ) -> Reply:
        """One usable reply, after retries.

        purpose: worker | inspector | digest | report. deadline: seconds of wall clock for each attempt.
        patience: seconds an outage may last. Raises ModelError, NoMoney, EndRun or Interrupted.
        """
        body = self._body(purpose, messages, tools, model or self.settings.model)
        chars = len(json.dumps(body["messages"])) + len(json.dumps(tools or []))
        limit = min(deadline or self.settings.request_timeout_seconds, self.settings.request_timeout_seconds)
        began, odd, attempt = time.monotonic(), 0, 0
        while True:
            attempt += 1
            worst = self._reserve(chars, purpose)
            try:
                return self._attempt(body, purpose, attempt, limit, chars, worst)
            except _Failure as failure:
                odd += failure.kind in ODD_REPLIES
                waited = time.monotonic() - began
                self._give_up_or_wait(failure, attempt, odd, patience - waited)

    def _body(self, purpose: str, messages: list[dict], tools: list[dict] | None, model: str) -> dict:
        body = {
            "model": model,
            "messages": messages,
            "max_completion_tokens": self.settings.max_completion_tokens,
            "user": purpose,
        }
        return body | ({"tools": tools, "tool_choice": "auto"} if tools else {})

    def _reserve(self, chars: int, purpose: str) -> float:
        worst = self.purse.worst_case(chars)
        if not self.purse.allows(worst, final=self.final or purpose == "report"):
            raise NoMoney(f"a {purpose} call could cost ${worst:.4f}, more than is left")
        return worst

    def _attempt(
        self, body: dict, purpose: str, attempt: int, limit: float, chars: int, worst: float
    ) -> Reply:
        """One request, its row in api_requests, and (when it failed) its API_ERROR event."""
        began = time.monotonic()
        row = {"purpose": purpose, "attempt": attempt, "model": body["model"]}
        try:
            reply = self._settle(read_reply(self._send(body, limit)), chars, worst)
            self._row(row, began, "ok", "", reply.finish_reason, reply.usage, reply.cost)
            return reply
        except _Failure as failure:
            cost = self.purse.price(failure.usage)
            if failure.billed:
                self.purse.settle(cost, worst)
            self._row(row, began, failure.kind, failure.text, None, failure.usage, cost)
            said = f"{purpose} call, attempt {attempt}: {failure.kind}: {failure.text}"
            self.recorder.event(events.API_ERROR, failure.usage, cost, sanitized_output=said[:2000])
            raise

    def _settle(self, reply: Reply, chars: int, worst: float) -> Reply:
        cost = self.purse.price(reply.usage)
        self.purse.settle(cost, worst)
        self.purse.calibrate(chars, reply.usage.prompt)
        return Reply(reply.text, reply.tool_calls, reply.finish_reason, reply.usage, cost)

    def _row(
        self, row: dict, began: float, status: str, detail: str, finish: str | None, usage: Usage,
        cost: float | None,
    ) -> None:  # fmt: skip
        row |= {"step_number": self.recorder.step, "status": status, "detail": detail[:500]}
        row |= {"finish_reason": finish, "cost_usd": cost}
        row |= {"prompt_tokens": usage.prompt, "completion_tokens": usage.completion}
        row |= {"cached_tokens": usage.cached, "reasoning_tokens": usage.reasoning}
        self.recorder.insert("api_requests", row | {"latency_seconds": round(time.monotonic() - began, 3)})

    def _give_up_or_wait(self, failure: _Failure, attempt: int, odd: int, patience: float) -> None:
        outage = failure.kind in OUTAGES
        if not outage and (failure.kind not in ODD_REPLIES or odd >= ODD_REPLY_ATTEMPTS):
            raise ModelError(failure.kind, failure.text)
        pause = max(failure.retry_after, FIRST_BACKOFF * 2 ** min(attempt - 1, 8))
        pause = min(pause, LONGEST_BACKOFF, max(0.0, self.clock.wall_remaining()))
        if pause > patience:
            raise ModelError(failure.kind, f"{failure.text} (given up after {attempt} attempts)")
        if self.clock.wall_remaining() <= 0:
            raise EndRun("wall limit reached")
        if outage:
            with self.clock.uncharged():
                self.clock.wait(pause, self.stop)
        else:
            self.clock.wait(pause, self.stop)
        if self.stop.is_set():
            raise Interrupted("asked to stop while waiting for the model")

    def _send(self, body: dict, limit: float) -> Any:
        self.ready()
        return self._loop.run_until_complete(self._send_async(body, limit))

    async def _send_async(self, body: dict, limit: float) -> Any:
        """The openai client's own timeout is per read; this one bounds the call, whatever drips."""
        task = asyncio.ensure_future(self._client_for(limit).chat.completions.create(**body))
        ends = time.monotonic() + limit
        try:
            while not task.done():
                if self.stop.is_set():
                    raise Interrupted("asked to stop during a model call")
                if time.monotonic() >= ends:
                    raise _Failure("deadline", f"no complete reply within {limit:.0f} s")
                await asyncio.wait({task}, timeout=min(TICK, max(0.01, ends - time.monotonic())))
            return task.result()
        except (_Failure, Interrupted):
            raise
        except Exception as error:
            raise classify(error) from error
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=1.0)

    def _client_for(self, limit: float) -> Any:
        import openai

        if self._client is None:
            self._client = openai.AsyncOpenAI(
                api_key=self.settings.token,
                base_url=self.settings.gateway_url.rstrip("/") + "/v1",
                max_retries=0,
                http_client=openai.DefaultAsyncHttpxClient(
                    trust_env=False,  # the gateway is reached directly, whatever proxy the guest has
                    verify=self.settings.gateway_url.startswith("https"),
                ),
            )
        return self._client.with_options(timeout=limit)


def _import_openai() -> None:
    import openai  # noqa: F401
    import openai.types.chat  # noqa: F401


def classify(error: Exception) -> _Failure:
    """The class of an exception of the openai package. Raises EndRun where the gateway ended the run."""
    import openai

    if isinstance(error, openai.APIStatusError):
        return _from_status(error)
    if isinstance(error, openai.APITimeoutError):
        return _Failure("deadline", "the connection fell silent")
    if isinstance(error, openai.APIConnectionError):
        cause = error.__cause__
        refused = "Connect" in type(cause).__name__
        return _Failure("connection", f"{error} {cause or ''}".strip(), billed=not refused)
    if isinstance(error, ValueError):
        return _Failure("malformed", f"the reply is not JSON: {error}")
    return _Failure("malformed", f"{type(error).__name__}: {error}")


def _from_status(error: Any) -> _Failure:
    body = error.body if isinstance(error.body, dict) else {}
    code = str(body.get("code") or "")
    if code in _ENDINGS:
        raise EndRun(_ENDINGS[code])
    text = f"HTTP {error.status_code} {body.get('message') or error.message}"[:500]
    if error.status_code == 429:
        return _Failure("rate_limit", text, retry_after=_seconds(error.response.headers), billed=False)
    if error.status_code >= 500 or error.status_code == 408:
        return _Failure("server", text, retry_after=_seconds(error.response.headers))
    return _Failure("refused", text, billed=False)


def _seconds(headers: Any) -> float:
    try:
        return max(0.0, float(headers.get("retry-after", "0")))
    except ValueError:
        return 0.0


def read_reply(completion: Any) -> Reply:
    """A usable Reply, or _Failure for what the openai package lets through without an error."""
    if isinstance(completion, (str, bytes)):
        raise _Failure("html", f"not JSON but text: {str(completion)[:200]}")
    usage = _usage(getattr(completion, "usage", None))
    extra = getattr(completion, "model_extra", None) or {}
    if extra.get("error"):
        raise _in_body(extra["error"], usage)
    if not getattr(completion, "choices", None):
        raise _Failure("empty", "a reply without choices", usage)
    choice = completion.choices[0]
    if choice.finish_reason == "error":
        raise _in_body((choice.model_extra or {}).get("error") or "finish_reason error", usage)
    if choice.finish_reason is None:
        raise _Failure("malformed", "the reply was cut before its end", usage)
    text, calls = choice.message.content or "", _calls(choice.message.tool_calls)
    if not text.strip() and not calls and choice.finish_reason != "length":
        raise _Failure("empty", "neither text nor a tool call", usage)
    return Reply(text, calls, choice.finish_reason, usage, None)


def _in_body(error: Any, usage: Usage) -> _Failure:
    code = error.get("code") if isinstance(error, dict) else None
    if code in _ENDINGS:
        raise EndRun(_ENDINGS[code])
    text = json.dumps(error, default=str)[:500]
    if str(code) == "429":
        return _Failure("rate_limit", text, usage)
    if str(code).startswith("5") and len(str(code)) == 3:
        return _Failure("server", text, usage)
    return _Failure("in_body_error", text, usage)


def _calls(raw: Any) -> tuple[ToolCall, ...]:
    """Tool calls with ids that are there and unique: some providers send neither."""
    calls, seen = [], set()
    for call in raw or []:
        function = getattr(call, "function", None)
        if function is None:
            continue
        name = call.id if call.id and call.id not in seen else f"call_{time.monotonic_ns()}_{len(calls)}"
        seen.add(name)
        calls.append(ToolCall(name, function.name or "", function.arguments or ""))
    return tuple(calls)


def _usage(raw: Any) -> Usage:
    if raw is None:
        return Usage()
    prompt_details = getattr(raw, "prompt_tokens_details", None)
    completion_details = getattr(raw, "completion_tokens_details", None)
    cost = (getattr(raw, "model_extra", None) or {}).get("cost")
    return Usage(
        prompt=raw.prompt_tokens,
        completion=raw.completion_tokens,
        cached=getattr(prompt_details, "cached_tokens", None),
        reasoning=getattr(completion_details, "reasoning_tokens", None),
        cost=float(cost) if isinstance(cost, (int, float)) and cost >= 0 else None,
    )
