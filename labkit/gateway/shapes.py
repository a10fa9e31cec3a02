"""HOST: which request bodies may reach a provider. What is not named here is refused.

Some fields and parts buy things or reach out: plugins, `n`, fallback models, tools that the provider runs
itself, addresses that it would fetch. None of them is passed on.
"""

from __future__ import annotations

import json
from collections.abc import Callable

# Fields that reach the provider.
FIELDS = frozenset(
    {"model", "messages", "tools", "tool_choice", "parallel_tool_calls", "response_format", "user"}
    | {"max_completion_tokens", "max_tokens", "temperature", "top_p", "frequency_penalty", "presence_penalty"}
    | {"stop", "seed", "stream", "stream_options", "reasoning", "reasoning_effort", "usage"}
)
ROLES = ("system", "developer", "user", "assistant", "tool")
MESSAGE_FIELDS = frozenset({"role", "content", "name", "tool_calls", "tool_call_id", "refusal"})
EFFORTS = ("none", "minimal", "low", "medium", "high")
MAX_MESSAGES, MAX_TOOLS = 10_000, 128
MAX_CALLS = 10_000  # function calls, and parts of contents, of all messages together: each is hashed
MAX_OPENED = 250_000  # brackets and braces, those in texts too: a million tokens of text have fewer


class BadShape(ValueError):
    """The body is not one that is passed on; the message says what in it, and why."""


def parsed(raw: bytes) -> dict:
    """The body as an object of permitted fields. BadShape otherwise.

    Nothing else runs in the process meanwhile, so what would take seconds is refused by its count.
    """
    opened = raw.count(b"[") + raw.count(b"{")
    _demand(opened <= MAX_OPENED, f"the body has more than {MAX_OPENED} lists and objects")
    try:
        body = json.loads(raw, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise BadShape("the body is not JSON") from None
    _demand(isinstance(body, dict), "the body is not a JSON object")
    unknown = set(body) - FIELDS
    _demand(not unknown, f"fields not passed on: {', '.join(sorted(unknown))[:200]}")
    _demand(isinstance(body.get("model"), str), "model must be a string")
    _demand(isinstance(body.get("messages"), list), "messages must be a list")
    _demand(len(body["messages"]) <= MAX_MESSAGES, f"messages has more than {MAX_MESSAGES} entries")
    for name in ("tool_calls", "content"):
        _demand(_together(body["messages"], name) <= MAX_CALLS, f"more than {MAX_CALLS} entries of {name}")
    for message in body["messages"]:
        _message(message)
    for name, check in CHECKS.items():
        if body.get(name) is not None:
            _demand(check(body[name]), f"{name} is not of a shape that is passed on")
    return body


def _together(messages: list, name: str) -> int:
    held = (message.get(name) for message in messages if isinstance(message, dict))
    return sum(len(one) for one in held if isinstance(one, list))


def _message(message: object) -> None:
    _demand(isinstance(message, dict), "a message is not an object")
    _demand(message.get("role") in ROLES, f"a message's role must be one of {', '.join(ROLES)}")
    _demand(set(message) <= MESSAGE_FIELDS, "a message has fields that are not passed on")
    _demand(_content(message.get("content")), "a message's content must be text")
    _demand(_texts(message, "name", "tool_call_id", "refusal"), "a message's names must be texts")
    calls = message.get("tool_calls") or []
    _demand(isinstance(calls, list) and all(map(_call, calls)), "tool_calls must be function calls")


def _content(content: object) -> bool:
    """Text, or parts that are text: a part with an address would make the provider fetch it."""
    if content is None or isinstance(content, str):
        return True
    return isinstance(content, list) and all(
        isinstance(part, dict)
        and set(part) == {"type", "text"}
        and part["type"] == "text"
        and isinstance(part["text"], str)
        for part in content
    )


def _call(call: object) -> bool:
    if not isinstance(call, dict) or not set(call) <= {"id", "type", "function", "index"}:
        return False
    function = call.get("function")
    named = isinstance(function, dict) and set(function) <= {"name", "arguments"}
    return named and call.get("type", "function") == "function" and _texts(function, "name", "arguments")


def _tool(tool: object) -> bool:
    if not isinstance(tool, dict) or set(tool) != {"type", "function"} or tool["type"] != "function":
        return False
    function = tool["function"]
    if not isinstance(function, dict) or not set(function) <= {"name", "description", "parameters", "strict"}:
        return False
    return isinstance(function.get("name"), str) and isinstance(function.get("parameters", {}), dict)


def _choice(choice: object) -> bool:
    if isinstance(choice, str):
        return choice in ("auto", "none", "required")
    named = isinstance(choice, dict) and set(choice) == {"type", "function"} and choice["type"] == "function"
    return named and isinstance(choice["function"], dict) and set(choice["function"]) == {"name"}


def _format(value: object) -> bool:
    known = isinstance(value, dict) and set(value) <= {"type", "json_schema"}
    return known and value.get("type") in ("text", "json_object", "json_schema")


def _reasoning(value: object) -> bool:
    if not isinstance(value, dict) or not set(value) <= {"effort", "max_tokens", "exclude", "enabled"}:
        return False
    tokens = value.get("max_tokens")
    flags = all(isinstance(value.get(name, True), bool) for name in ("exclude", "enabled"))
    counted = tokens is None or _whole(tokens, 1, 1 << 30)
    return flags and counted and value.get("effort") in (None, *EFFORTS)


def _stop(value: object) -> bool:
    if isinstance(value, str):
        return True
    return isinstance(value, list) and len(value) <= 16 and all(isinstance(one, str) for one in value)


def _between(low: float, high: float) -> Callable[[object], bool]:
    def check(value: object) -> bool:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return number and low <= value <= high  # false for NaN; no integer is too large to be compared

    return check


def _flag(value: object) -> bool:
    return isinstance(value, bool)


CHECKS: dict[str, Callable[[object], bool]] = {
    "tools": lambda value: isinstance(value, list) and len(value) <= MAX_TOOLS and all(map(_tool, value)),
    "tool_choice": _choice,
    "parallel_tool_calls": _flag,
    "response_format": _format,
    "user": lambda value: isinstance(value, str) and len(value) <= 64,
    "temperature": _between(0, 2),
    "top_p": _between(0, 1),
    "frequency_penalty": _between(-2, 2),
    "presence_penalty": _between(-2, 2),
    "stop": _stop,
    "seed": lambda value: _whole(value, -(2**63), 2**63 - 1),
    "stream": _flag,
    "stream_options": lambda value: isinstance(value, dict) and set(value) <= {"include_usage"},
    "reasoning": _reasoning,
    "reasoning_effort": lambda value: value in EFFORTS,
    "usage": lambda value: isinstance(value, dict) and set(value) <= {"include"},
}


def _texts(item: dict, *names: str) -> bool:
    return all(isinstance(item.get(name), str | None) for name in names)


def _whole(value: object, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def _demand(holds: bool, message: str) -> None:
    if not holds:
        raise BadShape(message)


def _no_constant(name: str) -> float:
    raise ValueError(name)
