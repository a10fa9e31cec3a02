"""HOST: makes what the agents wrote safe to show. Owns which characters a terminal would act on."""

from __future__ import annotations

import re

# C0 without tab and newline, DEL, C1, and the characters that hide text or turn its direction.
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
    "|[\ud800-\udfff]"
)


def harmless(text: str) -> str:
    """The text with every control, hiding or direction-turning character written out (`\\x1b`)."""
    return UNSAFE.sub(_spelled, text)


def _spelled(match: re.Match) -> str:
    return match[0].encode("unicode_escape", "backslashreplace").decode("ascii")
