"""HOST: checks a message list as strictly as the real providers do, and reads things out of it."""

from __future__ import annotations

import re

PHASE = re.compile(r"^\W*Phase:\W*([A-Z_]{4,})", re.MULTILINE)
ROLES = ("system", "developer", "user", "assistant", "tool")


def problem(messages: object) -> str:
    """Why a strict provider answers 400 to these messages; empty when it does not."""
    if not isinstance(messages, list) or not messages:
        return "messages must be a non-empty list"
    open_calls: set[str] = set()
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            return f"messages[{index}]: unknown role"
        if message["role"] == "tool":
            if message.get("tool_call_id") not in open_calls:
                return f"messages[{index}]: tool result without a tool call before it"
            open_calls.discard(message["tool_call_id"])
        elif open_calls:
            return f"messages[{index}]: tool calls without a result: {', '.join(sorted(open_calls))}"
        if flaw := _content_problem(message) or _calls_problem(message):
            return f"messages[{index}]: {flaw}"
        open_calls |= {call["id"] for call in message.get("tool_calls") or []}
    return f"tool calls without a result: {', '.join(sorted(open_calls))}" if open_calls else ""


def _content_problem(message: dict) -> str:
    content = message.get("content")
    if content is None and message["role"] == "assistant" and message.get("tool_calls"):
        return ""
    parts = content if isinstance(content, list) else [{"text": content}]
    if all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts):
        return ""
    return "content must be text"


def _calls_problem(message: dict) -> str:
    calls = message.get("tool_calls")
    if calls is None:
        return ""
    if message["role"] != "assistant" or not isinstance(calls, list) or not calls:
        return "tool_calls must be a non-empty list of an assistant message"
    ids = [call.get("id") if isinstance(call, dict) else None for call in calls]
    if not all(isinstance(item, str) and item for item in ids) or len(set(ids)) != len(ids):
        return "each tool call needs an id of its own"
    for call in calls:
        function = call.get("function")
        if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
            return "a tool call needs a function with arguments as text"
    return ""


def text(message: dict) -> str:
    """The text of a message, its parts joined."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def user_text(messages: list[dict]) -> str:
    return "\n".join(text(message) for message in messages if message["role"] == "user")


def phase(messages: list[dict]) -> str | None:
    """The phase that the latest status names with a line `Phase: NAME`."""
    for message in reversed(messages):
        if message["role"] != "tool" and (found := PHASE.findall(text(message))):
            return found[-1]
    return None


def last_result(messages: list[dict]) -> str:
    """The text of the latest tool result; empty when there is none."""
    return next((text(message) for message in reversed(messages) if message["role"] == "tool"), "")
