"""GUEST: reads what came back from a model: a usable Reply, or a Failure whose kind decides on a retry."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass, field
from email.utils import mktime_tz, parsedate_tz
from typing import Any

from harness.money import Usage

SILENCE = "silence"  # no reply in all the time that one may take; it may have been billed
OUTAGES = ("rate_limit", "server", "connection", SILENCE)  # waited out and not charged to the run
ODD_REPLIES = ("deadline", "empty", "html", "in_body_error", "malformed")  # tried again a few times
UNANSWERED = ("connection", SILENCE)  # outages in which nobody answered: the attempt is not charged either
GATEWAY = "lab_gateway"  # the type of the gateway's own errors; a provider's come through as they are
ENDINGS = {"budget_exhausted": "budget exhausted", "run_ended": "wall limit reached"}  # stop reasons
LONGEST_ASKED = 86_400.0  # seconds of a Retry-After that is believed; beyond, it is as if none were there
# Behind these the work may have been done and billed: statuses (the gateway's list), and its own word.
MAYBE_DONE, CUT_OFF = (408, 504, 522, 524), "cut"
# The gateway's own words for an outage: no provider answered.
GATEWAY_ALONE = ("provider_unreachable", "provider_timeout", CUT_OFF, "gateway_busy", "gateway_disk")


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
class Failure(Exception):
    kind: str
    text: str
    usage: Usage = field(default_factory=Usage)
    retry_after: float = 0.0
    billed: bool = True  # False: surely no money was taken


def classify(error: Exception) -> Failure:
    """The class of an exception of the openai package."""
    import openai

    if isinstance(error, openai.APIStatusError):
        return _from_status(error)
    refused = "Connect" in type(error.__cause__).__name__  # ConnectError, ConnectTimeout: nothing was sent
    if isinstance(error, openai.APITimeoutError) and not refused:
        return Failure("deadline", "the connection fell silent")
    if isinstance(error, openai.APIConnectionError):
        return Failure("connection", f"{error} {error.__cause__ or ''}".strip(), billed=not refused)
    if isinstance(error, ValueError):
        return Failure("malformed", f"the reply is not JSON: {error}")
    return Failure("malformed", f"{type(error).__name__}: {error}")


def _from_status(error: Any) -> Failure:
    """An answer that is no reply: the gateway's refusal, before anything was sent, or the provider's."""
    body = error.body if isinstance(error.body, dict) else {}
    status, code = error.status_code, str(body.get("code") or "")
    text = f"HTTP {status} {f'{code}: ' * bool(code)}{body.get('message') or error.message}"[:500]
    told = code if body.get("type") == GATEWAY else ""
    if told in ENDINGS:
        return Failure(told, text, billed=False)
    wait, billed = _seconds(error.response.headers), status in MAYBE_DONE or told == CUT_OFF
    if told in GATEWAY_ALONE:
        return Failure("connection", text, retry_after=wait, billed=billed)
    if status == 429:
        return Failure("rate_limit", text, retry_after=wait, billed=False)
    if status >= 500 or status == 408:
        return Failure("server", text, retry_after=wait, billed=billed)
    return Failure("refused", text, billed=False)


def _seconds(headers: Any) -> float:
    """What Retry-After asks for, in seconds or as a date; 0 where it asks for nothing that can be meant.

    A date is taken from the answer's own Date: the guest's wall clock may be off by a day.
    """
    told = headers.get("retry-after", "")
    try:
        wait = float(told)
    except ValueError:
        wait = _epoch(told) - (_epoch(headers.get("date", "")) or time.time())
    return wait if 0 < wait <= LONGEST_ASKED else 0.0


def _epoch(date: str) -> float:
    """0 for what is no date of HTTP."""
    try:
        return float(mktime_tz(parsedate_tz(date)))
    except (TypeError, ValueError, LookupError, OverflowError):
        return 0.0


def read_reply(completion: Any) -> Reply:
    """A usable Reply, or Failure for what the openai package lets through without an error."""
    if isinstance(completion, (str, bytes)):
        raise Failure("html", f"not JSON but text: {str(completion)[:200]}")
    usage = _usage(getattr(completion, "usage", None))
    try:
        return _read(completion, usage)
    except (AttributeError, LookupError, TypeError) as error:  # the package checks no types: a null, a list
        raise Failure("malformed", f"a reply of another shape: {error!r}"[:300], usage) from error


def _read(completion: Any, usage: Usage) -> Reply:
    extra = getattr(completion, "model_extra", None) or {}
    if extra.get("error"):
        raise _in_body(extra["error"], usage)
    if not getattr(completion, "choices", None):
        raise Failure("empty", "a reply without choices", usage)
    choice = completion.choices[0]
    if choice.finish_reason == "error":
        raise _in_body((choice.model_extra or {}).get("error") or "finish_reason error", usage)
    if choice.finish_reason is None:
        raise Failure("malformed", "the reply was cut before its end", usage)
    if not isinstance(choice.finish_reason, str):
        raise TypeError(f"finish_reason {choice.finish_reason!r}")
    text, calls = _text(choice.message.content), _calls(choice.message.tool_calls)
    if not text.strip() and not calls and choice.finish_reason != "length":
        raise Failure("empty", "neither text nor a tool call", usage)
    return Reply(text, calls, choice.finish_reason, usage, None)


def _in_body(error: Any, usage: Usage) -> Failure:
    code = str(error.get("code")) if isinstance(error, dict) else ""
    text = json.dumps(error, default=str)[:500]
    if code == "429":
        return Failure("rate_limit", text, usage)
    if code.startswith("5") and len(code) == 3:
        return Failure("server", text, usage)
    return Failure("in_body_error", text, usage)


def _calls(raw: Any) -> tuple[ToolCall, ...]:
    """Tool calls with ids that are there and unique: some providers send neither."""
    calls, seen = [], set()
    for call in raw or []:
        function = getattr(call, "function", None)
        if function is None:
            continue
        known = isinstance(call.id, str) and call.id and call.id not in seen
        name = call.id if known else f"call_{time.monotonic_ns()}_{len(calls)}"
        seen.add(name)
        calls.append(ToolCall(name, _text(function.name), _text(function.arguments)))
    return tuple(calls)


def _text(value: Any) -> str:
    """A text, or none at all. Raises TypeError for what is neither."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} in place of a text")
    return value or ""


def _usage(raw: Any) -> Usage:
    if raw is None:
        return Usage()
    prompt, completion = (
        _count(getattr(raw, "prompt_tokens", None)),
        _count(getattr(raw, "completion_tokens", None)),
    )
    prompt_details = getattr(raw, "prompt_tokens_details", None)
    completion_details = getattr(raw, "completion_tokens_details", None)
    return Usage(
        prompt=prompt,
        completion=completion,
        cached=_part(getattr(prompt_details, "cached_tokens", None), prompt),
        reasoning=_part(getattr(completion_details, "reasoning_tokens", None), completion),
        cost=_dollars((getattr(raw, "model_extra", None) or {}).get("cost")),
    )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 50 else None


def _part(value: Any, whole: int | None) -> int | None:
    """A subset is never more than the whole of it."""
    count = _count(value)
    return count if count is None or whole is None else min(count, whole)


def _dollars(value: Any) -> float | None:
    """JSON knows no NaN and no Infinity, but Python reads them."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < math.inf else None
