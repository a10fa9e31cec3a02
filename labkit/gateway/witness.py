"""HOST: what the ledger keeps of a model call, for `lab verify` to compare with the record: hashes only.

No text of an agent is kept here. Texts are brought into one form first, since the harness cleans what it
records; a contract test holds that form against the harness's own.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from dataclasses import dataclass, field

HIDDEN_TOKEN = "[run token]"  # what the harness writes in its place
CUT = "length"  # finish_reason of a reply that the token limit ended: none of its calls is run
REMEMBERED_CHARS = 16_000
MAX_CALLS = 1000  # of one reply; more are a provider gone wild

# As harness/text.py: escapes go whole, then what is invisible.
_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]"
)
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb\ud800-\udfff\ue000-\uf8ff"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e01ef\U000f0000-\U0010ffff]"
)
_VERDICT = re.compile(r'"verdict"\s*:\s*"(ALLOW|BLOCK)"')


def normal(text: str, token: str = "") -> str:
    """`text` as the harness would record it: cleaned, without the run's token."""
    text = _ESCAPES.sub("", text.replace("\r\n", "\n")).replace("\r", "\n")
    text = _HIDDEN.sub("", text)
    return text.replace(token, HIDDEN_TOKEN) if token else text


def fingerprint(text: str, token: str = "") -> str:
    """32 hex digits of SHA-256 over the normal form."""
    return _remembered(text, token) if len(text) <= REMEMBERED_CHARS else _fingerprint(text, token)


def _fingerprint(text: str, token: str) -> str:
    return hashlib.sha256(normal(text, token).encode("utf-8", "replace")).hexdigest()[:32]


# Each call of a session shows most of the texts of the call before. Bounded, whatever a guest sends: 16 MB.
_remembered = functools.lru_cache(maxsize=512)(_fingerprint)


def call_print(name: str, arguments: str, token: str = "") -> str:
    """One tool call, name and arguments."""
    return fingerprint(f"{normal(name)}\0{normal(arguments, token)}", token)


def shown(name: str, arguments: str) -> str:
    """What TOOL_CALL's command_or_input holds: execute_shell's command itself, else all the arguments."""
    try:
        command = json.loads(arguments or "{}").get("command") if name == "execute_shell" else None
    except (ValueError, AttributeError, RecursionError):
        command = None
    return command if isinstance(command, str) else arguments


def messages_of(body: dict, token: str = "") -> list[str]:
    """One word a message: first letter of its role, its content; behind them the calls of an assistant."""
    return [_message(message, token) for message in body.get("messages") or [] if isinstance(message, dict)]


def _message(message: dict, token: str) -> str:
    content = message.get("content")
    text = content if isinstance(content, str) else json.dumps(content) if content else ""
    words = [f"{str(message.get('role'))[:1]}:{fingerprint(text, token)}"]
    for call in (message.get("tool_calls") or [])[:MAX_CALLS]:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            name, arguments = str(function.get("name") or ""), str(function.get("arguments") or "")
            words.append(call_print(name, arguments, token))
    return ",".join(words)


@dataclass
class Completion:
    """Gathers text and tool calls of one reply, whole or streamed. `summary` is what the ledger keeps."""

    token: str = ""
    texts: list[str] = field(default_factory=list)  # pieces: one text that grew would be copied at each
    calls: dict[int, tuple[list[str], list[str]]] = field(default_factory=dict)  # index -> name, arguments

    def read(self, reply: object) -> None:
        """Take in one reply or one chunk of a stream; anything malformed is skipped."""
        choices = reply.get("choices") if isinstance(reply, dict) else None
        choice = choices[0] if isinstance(choices, list) and choices else None
        message = (choice.get("message") or choice.get("delta")) if isinstance(choice, dict) else None
        if not isinstance(message, dict):
            return
        if isinstance(message.get("content"), str):
            self.texts.append(message["content"])
        calls = message.get("tool_calls")
        for position, call in enumerate(calls if isinstance(calls, list) else []):
            self._call(position, call)

    def summary(self) -> dict:
        """{"text", "calls": [{"name", "shown", "call"}, ...]}: prints; an Inspector's "verdict" as a word."""
        calls, text = [self._kept(*call) for call in self.calls.values()], "".join(self.texts)
        found = _VERDICT.search(text)
        verdict = {"verdict": found[1]} if found else {}
        return {"text": fingerprint(normal(text, self.token).strip()), "calls": calls, **verdict}

    def _call(self, position: int, call: object) -> None:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or len(self.calls) >= MAX_CALLS:
            return
        index = call.get("index") if type(call.get("index")) is int else position  # type: ignore[union-attr]
        for pieces, key in zip(self.calls.setdefault(index, ([], [])), ("name", "arguments"), strict=True):
            if isinstance(function.get(key), str):
                pieces.append(function[key])

    def _kept(self, names: list[str], pieces: list[str]) -> dict:
        name, arguments = "".join(names), "".join(pieces)
        return {
            "name": normal(name)[:80],
            "shown": fingerprint(shown(name, arguments), self.token),
            "call": call_print(name, arguments or "{}", self.token),
        }
