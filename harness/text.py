"""GUEST: cleans, cuts and wraps text on its way to the Worker and into the record."""

from __future__ import annotations

import re
import secrets
import unicodedata

_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: titles, links
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # DCS and relatives
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[ -/]*[0-~]"
)
_DROPPED = {"Cc", "Cf", "Cs", "Co"}  # control, invisible and format, lone surrogates, private use
_LOOK_ALIKE = re.compile(
    r"[<\uff1c\ufe64\u2039\u276e]\s*[/\uff0f\u2215]?\s*(?=untrusted[\W_]*web[\W_]*content)", re.I
)


def clean(text: str) -> str:
    """Without terminal escapes, NUL, control and invisible characters; line ends are newlines."""
    text = _ESCAPES.sub("", text.replace("\r\n", "\n")).replace("\r", "\n")
    if text.isascii() and text.isprintable():
        return text
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in _DROPPED)


def decode(raw: bytes) -> str:
    return clean(raw.decode("utf-8", errors="replace"))


def clip(text: str, limit: int, where: str = "") -> str:
    """About `limit` characters at most: head, a sentence that says what is missing, tail."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    missing = len(text) - head - tail
    rest = f"; the whole text is in {where}" if where else ""
    return f"{text[:head]}\n[{missing} characters left out here{rest}]\n{text[-tail:]}"


def untrusted(text: str, source: str) -> str:
    """Wrap outside text under a random id; anything in it that looks like our own tag is defused."""
    mark = secrets.token_hex(6)
    body = _LOOK_ALIKE.sub("(defused tag) ", clean(text))
    name = re.sub(r"[\"<>\s]", " ", clean(source))[:300]
    return (
        f'<untrusted_web_content id="{mark}" source="{name}">\n{body}\n</untrusted_web_content id="{mark}">'
    )
