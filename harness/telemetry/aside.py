"""GUEST: puts the record of an earlier run aside: one database holds one run, and nothing is overwritten."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from pathlib import Path

EARLIER = "earlier"
STAYS = (EARLIER, "lost+found")
_PLAIN = re.compile(r"[\w.-]{1,80}")


def put_aside(folder: Path, run_id: str) -> str | None:
    """Empty `folder` (telemetry or mirror) of another run's record. Returns whose it was. Raises OSError."""
    if not os.path.lexists(folder / "run.db"):
        return None
    there = run_in(folder / "run.db")
    if there == run_id:
        return None
    name = there if _PLAIN.fullmatch(there) else "unnamed"
    move_aside(folder, name)
    return name


def move_aside(folder: Path, name: str) -> Path:
    """Everything in `folder` goes to earlier/<name>, or <name>-2 and so on. Raises OSError."""
    target, number = folder / EARLIER / name, 1
    while os.path.lexists(target):
        number += 1
        target = folder / EARLIER / f"{name}-{number}"
    target.mkdir(mode=0o700, parents=True)
    for entry in sorted(os.listdir(folder)):
        if entry not in STAYS:
            os.rename(folder / entry, target / entry)
    return target


def run_in(database: Path) -> str:
    """The run that a database records; '' for none, 'unreadable' for what is no database."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=5.0)) as db:
            row = db.execute("SELECT value FROM session_state WHERE key = 'run_id'").fetchone()
    except sqlite3.Error:
        return "unreadable"
    return str(row[0]) if row and row[0] else ""
