"""HOST: the mode of the guest's network for who looks at the run: as it began, then as it was switched."""

from __future__ import annotations

import json
from pathlib import Path

from labkit.gateway.config import now_utc
from labkit.gateway.files import JsonLines, read_lines

FILE_NAME = "network.jsonl"  # one line a switch


def mode(run_dir: Path) -> str:
    """`open`, `sealed`; empty where this host did not set it."""
    switched = [line["mode"] for line in read_lines(run_dir / FILE_NAME) if isinstance(line.get("mode"), str)]
    return switched[-1] if switched else _begun(run_dir)


def note(run_dir: Path, mode: str, who: dict[str, str], why: str) -> None:
    """Write down that it was switched. OSError."""
    lines = JsonLines(run_dir / FILE_NAME)
    try:
        lines.append([{"time": now_utc(), "mode": mode, "who": who, "why": why}])
    finally:
        lines.close()


def _begun(run_dir: Path) -> str:
    try:
        found = json.loads((run_dir / "run.json").read_text(encoding="utf-8"))["network"]
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    return found if isinstance(found, str) else ""
