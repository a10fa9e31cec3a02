"""HOST: counts tokens the way a provider bills them: prompt, completion, cached part of the prompt."""

from __future__ import annotations

import json
import os

CHARS_PER_TOKEN = 4
CACHED_READ = 0.1  # price of a cached prompt token against a fresh one


class Meter:
    """Remembers the last prompt of each purpose; its longest common prefix with the next one is cached."""

    def __init__(self, input_per_mtok: float, output_per_mtok: float) -> None:
        self._prices = (input_per_mtok, output_per_mtok)
        self._last: dict[str, str] = {}

    def usage(self, purpose: str, tools: list, messages: list, reply: dict) -> dict:
        """The `usage` object of one reply, with OpenRouter's `cost` in dollars."""
        prompt = json.dumps([tools, *messages])
        common = len(os.path.commonprefix([self._last.get(purpose, ""), prompt]))
        self._last[purpose] = prompt
        tokens, cached = tokens_of(prompt), common // CHARS_PER_TOKEN
        completion = tokens_of((reply.get("content") or "") + json.dumps(reply.get("tool_calls") or ""))
        effective = tokens - cached + cached * CACHED_READ
        cost = (effective * self._prices[0] + completion * self._prices[1]) / 1e6
        return {
            "prompt_tokens": tokens,
            "completion_tokens": completion,
            "total_tokens": tokens + completion,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": 0},
            "cost": round(cost, 9),
        }


def tokens_of(text: str) -> int:
    return -(-len(text) // CHARS_PER_TOKEN)
