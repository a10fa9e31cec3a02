"""GUEST: cleans, cuts and wraps text on its way to the Worker and into the record."""

from __future__ import annotations

import re
import secrets

_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: titles, links
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # DCS and relatives
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[ -/]*[0-~]"
)
# Unicode's Cc (but tab and newline), Cf, Cs and Co, and the variation selectors: what carries hidden text.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb\ud800-\udfff\ue000-\uf8ff"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e01ef\U000f0000-\U0010ffff]"
)
_LOOK_ALIKE = re.compile(
    r"[<\uff1c\ufe64\u2039\u276e]\s*[/\uff0f\u2215]?\s*(?=untrusted[\W_]*web[\W_]*content)", re.I
)


def clean(text: str) -> str:
    """Without terminal escapes, NUL, control and invisible characters; line ends are newlines."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text  # as nearly every text is: nothing to search for
    text = _ESCAPES.sub("", text.replace("\r\n", "\n")).replace("\r", "\n")
    return _HIDDEN.sub("", text)


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


def unquoted(reason: str) -> str:
    """A verdict's reason for the Worker: passages in quotes may be the very text that was refused."""
    return re.sub(r"(['\"\u2018\u201c`]).{8,}?['\"\u2019\u201d`]", "[a passage of it]", reason, flags=re.S)


def untrusted(text: str, source: str, mark: str = "") -> str:
    """Wrap outside text under a random id; anything in it that looks like our own tag is defused."""
    mark = mark or secrets.token_hex(6)
    body = _LOOK_ALIKE.sub("(defused tag) ", clean(text))
    name = re.sub(r"[\"<>\s]", " ", clean(source))[:300]
    return (
        f'<untrusted_web_content id="{mark}" source="{name}">\n{body}\n</untrusted_web_content id="{mark}">'
    )
