"""HOST: reads tokens, cost and finish reason out of a provider's reply, streamed or whole."""

from __future__ import annotations

import json
from dataclasses import dataclass

MOST_OPENED = 250_000  # brackets and braces of a reply: more take the process too long to parse
MOST = 2**53  # tokens or dollars: a larger number is no figure of a bill, and floats cannot take every one


@dataclass
class Usage:
    """None means that the provider did not say. Cached and reasoning tokens are subsets."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: float | None = None  # as billed
    finish_reason: str | None = None
    response_id: str | None = None

    def read(self, reply: object) -> None:
        """Take in one reply or one chunk of a stream; anything malformed is skipped."""
        if not isinstance(reply, dict):
            return
        if isinstance(reply.get("id"), str):
            self.response_id = reply["id"][:200]
        choices = reply.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            reason = choices[0].get("finish_reason")
            self.finish_reason = reason[:40] if isinstance(reason, str) else self.finish_reason
        if isinstance(reply.get("usage"), dict):
            self._read_usage(reply["usage"])

    def _read_usage(self, usage: dict) -> None:
        self.prompt_tokens = _count(usage.get("prompt_tokens"))
        self.completion_tokens = _count(usage.get("completion_tokens"))
        self.cached_tokens = _count(_inside(usage, "prompt_tokens_details", "cached_tokens"))
        self.reasoning_tokens = _count(_inside(usage, "completion_tokens_details", "reasoning_tokens"))
        cost = usage.get("cost")
        known = isinstance(cost, (int, float)) and not isinstance(cost, bool)
        self.cost_usd = float(cost) if known and 0 <= cost <= MOST else None


def _inside(usage: dict, outer: str, inner: str) -> object:
    details = usage.get(outer)
    return details.get(inner) if isinstance(details, dict) else None


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= MOST else None


def parse(data: bytes) -> object:
    """The JSON value of `data`, or None when it is none, or of more parts than a reply has."""
    if data.count(b"[") + data.count(b"{") > MOST_OPENED:
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def stream_chunk(line: bytes) -> object:
    """The JSON value of one `data:` line of an event stream, or None."""
    return parse(line[5:]) if line.startswith(b"data:") else None
