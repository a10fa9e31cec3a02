"""GUEST: turns a reply and its results into a Step of the window, in a form every provider takes back."""

from __future__ import annotations

import json
from collections.abc import Callable

from harness import tools
from harness.context import Step
from harness.replies import Reply, ToolCall
from harness.text import clean
from harness.tools.base import Outcome

NO_CALL = "You answered without a tool call, so nothing happened. Go on with a tool call."
CUT = "Your last reply was cut at the token limit; none of its tool calls was run. Be briefer."


def as_step(
    number: int, nudges: list[dict], reply: Reply, results: list[Outcome], mask: Callable[[object], object]
) -> Step:
    """results: one per tool call of the reply, in order; none for a cut reply."""
    calls = runnable(reply)
    said: dict = {"role": "assistant", "content": str(mask(clean(reply.text))) or "(no text)"}
    if calls:
        said["tool_calls"] = [_as_message(call, _id(number, at), mask) for at, call in enumerate(calls)]
    messages = [*nudges, said]
    for at, outcome in enumerate(results):
        messages.append({"role": "tool", "tool_call_id": _id(number, at), "content": outcome.text})
    if not calls:
        messages.append({"role": "user", "content": CUT if reply.cut else NO_CALL})
    return Step(number, messages)


def runnable(reply: Reply) -> tuple[ToolCall, ...]:
    """The calls that may be run: none of a reply that the token limit cut."""
    return () if reply.cut else reply.tool_calls


def _id(step: int, at: int) -> str:
    """Some providers repeat their ids in each reply, others refuse one that comes twice."""
    return f"c{step % 10**5:05d}{at % 1000:03d}"


def _as_message(call: ToolCall, name: str, mask: Callable[[object], object]) -> dict:
    """Arguments that are no JSON object would make some providers refuse every later prompt."""
    arguments = str(mask(clean(call.arguments))) or "{}"
    if tools.parse(arguments) is None:
        arguments = json.dumps({"malformed": arguments})
    return {"id": name, "type": "function", "function": {"name": clean(call.name), "arguments": arguments}}
