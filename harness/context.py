"""GUEST: owns what the Worker's model is shown: system + digest + window + status, in this order.

The order keeps the longest prefix byte-equal from step to step. Steps are evicted whole.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property

from harness.errors import ContextError

MAX_WINDOW_CHARS = 400_000  # about 100,000 tokens: beyond it the window is cut early
NO_DIGEST = "Digest of your earlier work: nothing has been dropped from your context yet."


@dataclass
class Step:
    """One step as the model sees it: nudges, the assistant's message, a result for each of its calls."""

    number: int
    messages: list[dict] = field(default_factory=list)

    @cached_property
    def chars(self) -> int:
        """Size as sent. A step is not changed once it is in the window."""
        return sum(len(json.dumps(message)) for message in self.messages)


class Context:
    """The Worker's memory in the prompt.

    The window grows to max_steps and is then cut to min_steps at once, so that the prefix changes rarely.
    """

    def __init__(self, system: str, max_steps: int, min_steps: int) -> None:
        self.system, self.max_steps, self.min_steps = system, max_steps, min_steps
        self.digest = ""
        self.steps: list[Step] = []

    def add(self, step: Step) -> None:
        validate(step.messages)
        self.steps.append(step)

    def chars(self) -> int:
        return len(self.system) + len(self.digest) + sum(step.chars for step in self.steps)

    def is_full(self) -> bool:
        too_large = sum(step.chars for step in self.steps) > MAX_WINDOW_CHARS and len(self.steps) > 1
        return len(self.steps) > self.max_steps or too_large

    def cut(self) -> list[Step]:
        """Drop the oldest steps whole, down to min_steps (fewer if they are huge, never below one)."""
        keep = max(1, min(self.min_steps, len(self.steps) - 1))
        while keep > 1 and sum(step.chars for step in self.steps[-keep:]) > MAX_WINDOW_CHARS:
            keep -= 1
        dropped, self.steps = self.steps[:-keep], self.steps[-keep:]
        return dropped

    def outgoing(self, nudges: list[dict], status: str) -> list[dict]:
        """The message list of the next call. Raises ContextError rather than send a broken one."""
        messages = [
            {"role": "system", "content": self.system},
            {"role": "user", "content": digest_message(self.digest)},
            *(message for step in self.steps for message in step.messages),
            *nudges,
            {"role": "user", "content": status},
        ]
        validate(messages)
        return messages


def digest_message(digest: str) -> str:
    return f"Digest of your earlier work (older steps were dropped):\n\n{digest}" if digest else NO_DIGEST


def validate(messages: list[dict]) -> None:
    """Each assistant tool_call is answered exactly once, right behind it; no result is an orphan."""
    open_calls: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                raise ContextError(f"orphan or repeated tool result {message['tool_call_id']}")
            open_calls.discard(message["tool_call_id"])
            continue
        if open_calls:
            raise ContextError(f"unanswered tool calls {sorted(open_calls)}")
        calls = [call["id"] for call in message.get("tool_calls") or []]
        open_calls = set(calls)
        if len(open_calls) != len(calls):
            raise ContextError("two tool calls share an id")
    if open_calls:
        raise ContextError(f"unanswered tool calls {sorted(open_calls)}")
