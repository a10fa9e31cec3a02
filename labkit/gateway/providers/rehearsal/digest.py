"""HOST: the rehearsal's digest and its report without tools: made from the text that the harness sends."""

from __future__ import annotations

import re

MAX_WORDS = 200
PATHS = re.compile(r"\b(?:notes|scripts|tools)/[\w.-]+\w|\b[\w-]+(?:_v\d+)?\.(?:md|py|c)\b")
DEAD_END = re.compile(r"refus|not allowed|error|failed|BLOCK|no such file|Traceback", re.IGNORECASE)
DECISION = re.compile(r"\b(I |I'll|decide|because|next:|so that|rather than)", re.IGNORECASE)


def digest(given: str) -> str:
    """Decisions, paths and dead ends of the given text in at most 200 words, never empty."""
    lines = [" ".join(line.split()) for line in given.splitlines()]
    decisions = _pick(lines, DECISION, 4)
    dead_ends = [line for line in _pick(lines, DEAD_END, 6) if line not in decisions][:3]
    paths = list(dict.fromkeys(PATHS.findall(given)))
    parts = ["## Decisions and why", *_bullets(decisions, "Measure small things first, then build one tool.")]
    parts += ["## Files", *_bullets(paths[-14:], "none yet")]
    parts += ["## Dead ends", *_bullets(dead_ends, "none yet")]
    return _cut("\n".join(parts))


def report(given: str) -> str:
    """A final report as text, for a call that offers no tools."""
    return "# Final report\n\nWritten from the digest and the window, without tools.\n\n" + digest(given)


def _pick(lines: list[str], pattern: re.Pattern[str], most: int) -> list[str]:
    found = [line[:140] for line in lines if len(line) > 20 and pattern.search(line)]
    return list(dict.fromkeys(found))[-most:]


def _bullets(items: list[str], empty: str) -> list[str]:
    return [f"- {item.lstrip('-* ')}" for item in items or [empty]]


def _cut(text: str) -> str:
    """At most MAX_WORDS words, whole lines only."""
    kept: list[str] = []
    for line in text.splitlines():
        if len(" ".join([*kept, line]).split()) > MAX_WORDS:
            break
        kept.append(line)
    return "\n".join(kept)
