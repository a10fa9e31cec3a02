"""GUEST: owns what the Worker's model is shown: system + digest + window + status, in this order.

The order keeps the longest prefix byte-equal from step to step. Steps are evicted whole.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property

from harness.errors import ContextError

MAX_WINDOW_CHARS = 400_000  # about 100,000 tokens: beyond it the window is cut early
ROLES = ("system", "user", "assistant", "tool")
NO_DIGEST = "Digest of your earlier work: nothing has been dropped from your context yet."


@dataclass
class Step:
    """One step as the model sees it: nudges, the assistant's message, a result for each of its calls."""

    number: int
    messages: list[dict] = field(default_factory=list)

    @cached_property
    def as_json(self) -> str:
        """As a checkpoint holds it. Made once, not once a call: in the window a step does not change."""
        return json.dumps({"number": self.number, "messages": self.messages})

    @property
    def chars(self) -> int:
        """Size as sent, some characters more."""
        return len(self.as_json)


class Context:
    """The Worker's memory in the prompt.

    The window grows to max_steps and is then cut to min_steps at once, so that the prefix changes rarely.
    With both equal it slides by one step. pending: steps that left the window and are not yet in the digest.
    """

    def __init__(self, system: str, max_steps: int, min_steps: int) -> None:
        self.system, self.max_steps, self.min_steps = system, max_steps, min_steps
        self.digest = ""
        self.steps: list[Step] = []
        self.pending: list[Step] = []

    def add(self, step: Step) -> None:
        validate(step.messages)
        self.steps.append(step)

    def chars(self) -> int:
        return len(self.system) + len(self.digest) + sum(step.chars for step in self.steps)

    def is_full(self) -> bool:
        too_large = sum(step.chars for step in self.steps) > MAX_WINDOW_CHARS and len(self.steps) > 1
        return len(self.steps) > self.max_steps or too_large

    def drop(self, at_once: bool = False) -> bool:
        """Cut a full window (at_once: one that is not full). True: the digest is to take up what is pending.

        A window that slides gathers as many steps as it holds before it asks for a digest.
        """
        if not self.is_full() and not (at_once and len(self.steps) > 1):
            return False
        self.pending += self.cut()
        return at_once or self.min_steps < self.max_steps or len(self.pending) >= self.max_steps

    def repair(self) -> int:
        """Leave out steps that no list may hold (of a damaged checkpoint, say). Returns how many."""
        sound: list[Step] = []
        for step in self.steps:
            try:
                validate([message for known in [*sound, step] for message in known.messages])
                sound.append(step)
            except (ContextError, KeyError, TypeError):
                continue
        gone, self.steps = len(self.steps) - len(sound), sound
        return gone

    def cut(self) -> list[Step]:
        """Drop the oldest steps whole, down to min_steps (fewer if they are huge, never below one)."""
        keep = max(1, min(self.min_steps, len(self.steps) - 1))
        while keep > 1 and sum(step.chars for step in self.steps[-keep:]) > MAX_WINDOW_CHARS:
            keep -= 1
        dropped, self.steps = self.steps[:-keep], self.steps[-keep:]
        return dropped

    def brief(self, status: str) -> list[dict]:
        """The same without the window: for the report when there is no money for more."""
        return [
            {"role": "system", "content": self.system},
            {"role": "user", "content": digest_message(self.digest)},
            {"role": "user", "content": status},
        ]

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
    """Each assistant tool_call is answered exactly once, right behind it; no orphan result, no id twice."""
    open_calls: set[str] = set()
    seen: set[str] = set()
    for message in messages:
        if message["role"] not in ROLES or not isinstance(message.get("content"), str):
            raise ContextError(f"a message of {message['role']!r} without a text")
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                raise ContextError(f"orphan or repeated tool result {message['tool_call_id']}")
            open_calls.discard(message["tool_call_id"])
            continue
        if open_calls:
            raise ContextError(f"unanswered tool calls {sorted(open_calls)}")
        calls = [call["id"] for call in message.get("tool_calls") or []]
        open_calls = set(calls)
        if len(open_calls) != len(calls) or open_calls & seen:
            raise ContextError("two tool calls share an id")
        seen |= open_calls
    if open_calls:
        raise ContextError(f"unanswered tool calls {sorted(open_calls)}")
