"""HOST: the rehearsal's Inspector: BLOCK when the reviewed text matches a rule of `rules.yml`, else ALLOW."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import yaml

RULES = Path(__file__).with_name("rules.yml")


@functools.cache
def _rules() -> list[tuple[re.Pattern[str], str]]:
    rows = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    return [(re.compile(row["pattern"], re.IGNORECASE), row["reason"]) for row in rows]


def verdict(reviewed: str) -> str:
    """JSON text {"verdict": "ALLOW"|"BLOCK", "reason": ...} about the reviewed text."""
    flat = " ".join(reviewed.split())
    for pattern, reason in _rules():
        if found := pattern.search(flat):
            return json.dumps({"verdict": "BLOCK", "reason": f"{reason}: {found.group(0)[:80]!r}"})
    return json.dumps({"verdict": "ALLOW", "reason": "no instruction and no payload found in it"})
