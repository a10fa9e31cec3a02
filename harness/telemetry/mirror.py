"""GUEST: owns the mirror: the second copy of run.db, on a file system of its own, under the same ids.

Whatever befalls it (full, read-only, detached, frozen, damaged, gone) raises here and is dealt with by the
recorder. A write waits MIRROR_BUSY_MS for a lock at most, ANSWER_SECONDS for a device that does not answer.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.telemetry.aside import move_aside
from harness.telemetry.copies import agree, copy_missing, integrity, last_id, missing, put
from harness.telemetry.patience import NoAnswerError, Patience

SCHEMA = Path(__file__).with_name("schema.sql")
BUSY_MS, MIRROR_BUSY_MS = 5000, 1000
CACHE_KB = 256  # of pages a copy: rows are appended, and an orchestrator is to stay as large as it began
ANSWER_SECONDS = 10.0  # once an outage: while a call has not come back, the next ones fail at once
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
        _complete(db)
    except BaseException:
        db.close()
        raise
    return db


def _complete(db: sqlite3.Connection) -> None:
    """A run that an earlier harness began may go on with this one: its tables lack what came since."""
    known = {column[1] for column in db.execute("PRAGMA table_info(api_requests)")}
    if "cost_source" not in known:
        db.execute("ALTER TABLE api_requests ADD COLUMN cost_source TEXT")


class Mirror:
    """Open or not; `state` is 'ok' or 'degraded: why'. What touches its file system is called by `_ask`."""

    def __init__(self, path: Path, primary: sqlite3.Connection) -> None:
        self.path, self.primary = path, primary
        self.db: sqlite3.Connection | None = None
        self.state = "ok"
        self._place: tuple[int, int] | None = None
        self._mounted = _in_fstab(path.parent)
        self._patience = Patience(ANSWER_SECONDS)
        self._in_use: sqlite3.Connection | None = None  # by a call that may be held

    def restore_primary(self) -> int:
        """At start only: rows that run.db lost and the mirror holds go back. Returns how many. Raises."""
        self.db, lost = self._ask(self._lost_rows)
        return put(self.primary, lost)

    def open(self) -> int:
        """(Re)open it and give it every row it lacks. Returns how many. Raises sqlite3.Error or OSError."""
        try:
            self.db, copied, self._place = self._ask(self._opened)
        except BaseException:
            self.db = None
            raise
        self.state = "ok"
        self._mounted = self._mounted or os.path.ismount(self.path.parent)
        return copied

    def write(self, work: Callable[[sqlite3.Connection], Any]) -> None:
        """Begin to write: `work` is given the database. `settle` waits for it.

        Raises what went wrong with the write before.
        """
        self.settle()
        if self.db is not None:
            self._in_use = self.db
            self._patience.start(lambda: work(self._in_use), self._drop)

    def settle(self) -> None:
        """Wait for the write that was begun, if any. Raises what it raised."""
        self._patience.finish()

    def look(self) -> None:
        """A detached file system takes writes without a word: is run.db still where it was opened?"""
        self._ask(self._look)

    def check(self) -> str:
        """'ok', or what is wrong with it."""
        if self.db is None:
            return "not open"
        try:
            return self._ask(lambda: integrity(self._in_use))
        except NoAnswerError as error:
            return str(error)

    def shorten(self) -> None:
        """Move what stands in the write-ahead log into the database, and empty the log. Raises."""
        if self.db is not None:
            self._ask(lambda: self._in_use.execute("PRAGMA wal_checkpoint(TRUNCATE)"))

    @property
    def held(self) -> bool:
        """Whether a call that was given up has not come back yet."""
        return self._patience.held

    def leave(self, error: Exception) -> None:
        self.close()
        self.state = f"degraded: {error}"

    def close(self) -> None:
        """A connection that is held is closed when it comes back."""
        with contextlib.suppress(*FAILURES):
            self.settle()
        if self.db is not None:
            with contextlib.suppress(*FAILURES):
                self._ask(self._drop)
        self.db = None

    def end(self) -> None:
        """Close it for good."""
        self.close()
        self._patience.end()

    def _ask(self, work: Callable[[], Any]) -> Any:
        self.settle()
        if not self.held:
            self._in_use = self.db
        self._patience.start(work, self._drop)
        return self._patience.finish()

    def _drop(self) -> None:
        db, self._in_use = self._in_use, None
        if db is not None:
            with contextlib.suppress(sqlite3.Error):
                db.close()

    def _lost_rows(self) -> tuple[sqlite3.Connection, dict[str, list[tuple]]]:
        db = self._in_use = self._in_use or self._connect()
        is_longer = last_id(db) > last_id(self.primary)
        return db, missing(db, self.primary) if is_longer and agree(self.primary, db) else {}

    def _opened(self) -> tuple[sqlite3.Connection, int, tuple[int, int]]:
        db = self._in_use = self._in_use or self._connect()
        try:
            if last_id(db) > last_id(self.primary) or not agree(self.primary, db):
                db.close()
                move_aside(self.path.parent, "not-this-run")
                db = self._in_use = self._connect()
            copied = copy_missing(self.primary, db)
            place = os.stat(self.path)
        except BaseException:
            self._drop()
            raise
        return db, copied, (place.st_dev, place.st_ino)

    def _look(self) -> None:
        self._check_mount()
        here = os.stat(self.path)
        if (here.st_dev, here.st_ino) != self._place:
            raise OSError(f"{self.path} is not the file that was opened")

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
