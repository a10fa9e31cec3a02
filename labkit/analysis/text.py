"""HOST: text for a terminal: which characters one would act on, written out; lines folded to its width."""

from __future__ import annotations

import re
import textwrap

# C0 without tab and newline, DEL, C1, and the characters that hide text or turn its direction.
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
    "|[\ud800-\udfff]"
)

_TYPED = re.compile(r"`[^`\n]{1,60}`")
_NO_BREAK = "\x00"  # `harmless` leaves none in a text


def harmless(text: str) -> str:
    """The text with every control, hiding or direction-turning character written out (`\\x1b`)."""
    return UNSAFE.sub(_spelled, text)


def one_line(text: str) -> str:
    """`harmless`, with newlines and tabs written out as well: a name can't look like a further line."""
    return harmless(text).replace("\n", "\\n").replace("\t", "\\t")


def dollars(usd: float) -> str:
    """`$1.50`; an amount that is no whole number of cents in six digits."""
    return f"${usd:.2f}" if abs(usd - round(usd, 2)) < 1e-9 else f"${usd:g}"


def folded(text: str, columns: int, indent: str = "  ") -> str:
    """The text with no line longer than `columns`, broken between words; its later parts are indented more.

    What stands in backquotes is there to be typed: it stays on one line where that is wide enough.
    """
    return "\n".join(_folded(line, columns, indent) for line in text.split("\n"))


def _folded(line: str, columns: int, indent: str) -> str:
    if len(line) <= columns:
        return line
    own = line[: len(line) - len(line.lstrip(" "))]
    whole = _TYPED.sub(lambda match: match[0].replace(" ", _NO_BREAK), line)
    parts = textwrap.wrap(
        whole,
        max(columns, 20),
        subsequent_indent=own + indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(parts).replace(_NO_BREAK, " ")


def _spelled(match: re.Match) -> str:
    return match[0].encode("unicode_escape", "backslashreplace").decode("ascii")
