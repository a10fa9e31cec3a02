"""GUEST: owns the mirror: the second copy of run.db, on a file system of its own, under the same ids.

Whatever befalls it (full, read-only, detached, damaged, gone) raises here and is dealt with by the recorder.
A write waits MIRROR_BUSY_MS for a lock at most. Not covered: a device that never answers holds the writing
process in the kernel, and no time limit of ours reaches there.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

from harness.telemetry.aside import move_aside
from harness.telemetry.copies import agree, copy_missing, in_one, last_id

SCHEMA = Path(__file__).with_name("schema.sql")
BUSY_MS, MIRROR_BUSY_MS = 5000, 1000
CACHE_KB = 256  # of pages a copy: rows are appended, and an orchestrator is to stay as large as it began
FAILURES = (sqlite3.Error, OSError)


def connect(path: Path, synchronous: str, busy_ms: int = BUSY_MS) -> sqlite3.Connection:
    """A database with our schema. Raises sqlite3.Error or OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        db.execute(f"PRAGMA busy_timeout={busy_ms}")  # first: the next two can already meet a lock
        db.execute("PRAGMA journal_mode=WAL")
        db.execute(f"PRAGMA synchronous={synchronous}")
        db.execute(f"PRAGMA cache_size=-{CACHE_KB}")
        db.executescript(SCHEMA.read_text(encoding="utf-8"))
    except BaseException:
        db.close()
        raise
    return db


class Mirror:
    """Open or not; `state` is 'ok' or 'degraded: why'."""

    def __init__(self, path: Path, primary: sqlite3.Connection) -> None:
        self.path, self.primary = path, primary
        self.db: sqlite3.Connection | None = None
        self.state = "ok"
        self._place: tuple[int, int] | None = None
        self._mounted = _in_fstab(path.parent)

    def restore_primary(self) -> int:
        """At start only: rows that run.db lost and the mirror holds go back. Returns how many. Raises."""
        self.db = db = self.db or self._connect()
        is_longer = last_id(db) > last_id(self.primary)
        return copy_missing(db, self.primary) if is_longer and agree(self.primary, db) else 0

    def open(self) -> int:
        """(Re)open it and give it every row it lacks. Returns how many. Raises sqlite3.Error or OSError."""
        db = self.db or self._connect()
        try:
            if last_id(db) > last_id(self.primary) or not agree(self.primary, db):
                db.close()
                move_aside(self.path.parent, "not-this-run")
                db = self._connect()
            copied = copy_missing(self.primary, db)
            place = os.stat(self.path)
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                db.close()
            self.db = None
            raise
        self.db, self.state = db, "ok"
        self._place = place.st_dev, place.st_ino
        self._mounted = self._mounted or os.path.ismount(self.path.parent)
        return copied

    def write(self, sql: str, rows: list[list]) -> None:
        if self.db is not None:
            in_one(self.db, sql, rows)

    def look(self) -> None:
        """A detached file system takes writes without a word: is run.db still where it was opened?"""
        self._check_mount()
        here = os.stat(self.path)
        if (here.st_dev, here.st_ino) != self._place:
            raise OSError(f"{self.path} is not the file that was opened")

    def leave(self, error: Exception) -> None:
        self.close()
        self.state = f"degraded: {error}"

    def close(self) -> None:
        db, self.db = self.db, None
        if db is not None:
            with contextlib.suppress(sqlite3.Error):
                db.close()

    def _connect(self) -> sqlite3.Connection:
        self._check_mount()
        try:
            return connect(self.path, "NORMAL", MIRROR_BUSY_MS)
        except sqlite3.DatabaseError as error:
            if type(error) is not sqlite3.DatabaseError:  # a lock, a full or a read-only file system
                raise
            move_aside(self.path.parent, "damaged")
            return connect(self.path, "NORMAL", MIRROR_BUSY_MS)

    def _check_mount(self) -> None:
        """Without this an unmounted mirror would go on, unseen, on the disk that it is to be apart from."""
        if self._mounted and not os.path.ismount(self.path.parent):
            raise OSError(f"nothing is mounted at {self.path.parent}")


def _in_fstab(folder: Path) -> bool:
    try:
        lines = Path("/etc/fstab").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    return str(folder) in [line.split()[1] for line in lines if len(line.split()) > 1 and line[0] != "#"]
