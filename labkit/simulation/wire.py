"""HOST: what a simulated provider puts on the wire: completions, usage with its lies, broken bodies."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from harness.replies import ENDINGS, GATEWAY, GATEWAY_ALONE
from labkit.simulation.agents import Said
from labkit.simulation.script import Fault

CHARS_PER_TOKEN = 4


@dataclass(frozen=True)
class Bill:
    """What one call really cost: tokens, cached ones being a part of the prompt's, and dollars."""

    prompt: int
    cached: int
    completion: int
    dollars: float


class Meter:
    """Counts tokens and dollars. The prefix that a request shares with the last of its purpose is cached."""

    def __init__(self, input_per_mtok: float, output_per_mtok: float, cached_reads: float) -> None:
        self.input, self.output, self.cached_reads = input_per_mtok, output_per_mtok, cached_reads
        self._last: dict[str, bytes] = {}

    def bill(self, purpose: str, raw: bytes, said: Said | None) -> Bill:
        """raw: the request's bytes. said: None where no reply was made."""
        raw = _tools_first(raw)
        before, self._last[purpose] = self._last.get(purpose, b""), raw
        prompt, cached = -(-len(raw) // CHARS_PER_TOKEN), common(before, raw) // CHARS_PER_TOKEN
        completion = 0 if said is None else said.completion_tokens
        if completion is None:
            completion = -(-len(said.text + json.dumps(said.calls)) // CHARS_PER_TOKEN)
        effective = prompt - cached + cached * self.cached_reads
        dollars = (effective * self.input + completion * self.output) / 1e6
        return Bill(prompt, cached, completion, round(dollars, 9))


def _tools_first(raw: bytes) -> bytes:
    """The request as a model reads it: providers put the tools before the messages, and cache them there."""
    at = raw.rfind(b',"tools":')
    return raw if at < 0 else raw[at:] + raw[:at]


def common(one: bytes, other: bytes) -> int:
    """Length of the common beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def usage(bill: Bill, claims: str) -> dict | None:
    """The usage object as the provider states it; see USAGES in script.py."""
    if claims == "none":
        return None
    factor = {"zero": 0, "huge": 1000}.get(claims, 1)
    prompt, completion = bill.prompt * factor, bill.completion * factor
    cached = prompt * 3 if claims == "cached_above_prompt" else bill.cached * factor
    said: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    if claims != "no_cost":
        said["cost"] = {"zero": 0.0, "negative": -1.0}.get(claims, bill.dollars)
    return said


def completion(said: Said, number: int, model: str, stated: dict | None) -> dict:
    """An OpenAI chat completion."""
    message: dict[str, Any] = {"role": "assistant", "content": said.text}
    if said.calls:
        message["tool_calls"] = [_call(said, number, at) for at in range(len(said.calls))]
    finish = said.finish if said.finish != "" else ("tool_calls" if said.calls else "stop")
    whole = {"id": f"chat-{number}", "object": "chat.completion", "created": 1, "model": model}
    whole["choices"] = [{"index": 0, "message": message, "finish_reason": finish}]
    return whole | ({} if stated is None else {"usage": stated})


def _call(said: Said, number: int, at: int) -> dict:
    name, given = said.calls[at]
    arguments = given if isinstance(given, str) else json.dumps(given)
    call = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return {"id": f"call_{number}_{at}" if said.ids else "", **call}


def spoiled(said: Said, fault: Fault, offered: list[str]) -> Said:
    """The reply with a fault of script.REPLY in it."""
    calls = said.calls or [("list_workspace", {})]
    spoil = {
        "malformed_arguments": lambda: Said(said.text, [(calls[0][0], '{"command": "echo 1')]),
        "wrong_types": lambda: Said(said.text, [("read_file", {"path": 7, "offset": "x"})]),
        "unknown_tool": lambda: Said(said.text, [("launch_rocket", {"to": "moon"})]),
        "withheld_tool": lambda: Said(said.text, [(_withheld(offered), {"url": "https://example.org/"})]),
        "token_limit": lambda: Said(said.text, said.calls, "length"),
        "no_finish": lambda: Said(said.text, said.calls, None),
        "words_only": lambda: Said("I would rather not use a tool now."),
        "many_calls": lambda: Said(said.text, [("list_workspace", {})] * 12),
        "no_ids": lambda: Said(said.text, calls * 2, ids=False),
        "odd_text": lambda: Said("a\x00b\x1b[31mred\u202e", calls),
        "loop": lambda: Said("Again.", [("execute_shell", {"command": fault.command})]),
    }
    return spoil[fault.kind]()


def _withheld(offered: list[str]) -> str:
    known = ("write_script", "browser_fetch", "execute_shell")
    return next((name for name in known if name not in offered), "launch_rocket")


def error(status: int, message: str, code: str) -> tuple[int, bytes]:
    """Body of a refusal; what only the gateway says is of its type."""
    kind = GATEWAY if code in (*ENDINGS, *GATEWAY_ALONE) else "simulated"
    return status, json.dumps({"error": {"message": message, "type": kind, "code": code}}).encode()
