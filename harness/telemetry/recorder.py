"""GUEST: writes every row twice: run.db (WAL, FULL) first, then the mirror (WAL, NORMAL) under the same id.

A mirror that fails is reported once as MIRROR_DEGRADED and left; it never stops the run. One thread writes.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from harness.money import Usage
from harness.telemetry import events

SCHEMA = Path(__file__).with_name("schema.sql")
BUSY_MS = 5000
HIDDEN = "[run token]"


def connect(path: Path, synchronous: str) -> sqlite3.Connection:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.execute(f"PRAGMA busy_timeout={BUSY_MS}")  # first: the next two can already meet a lock
    db.execute("PRAGMA journal_mode=WAL")
    db.execute(f"PRAGMA synchronous={synchronous}")
    db.executescript(SCHEMA.read_text(encoding="utf-8"))
    return db


class Recorder:
    """The record of one run. `step` and `phase` are set by the loop and stand on every row."""

    def __init__(self, primary: Path, mirror: Path, secret: str, elapsed: Callable[[], float]) -> None:
        self.db = connect(primary, "FULL")
        self.secret = secret
        self.elapsed = elapsed
        self.step = 0
        self.phase = "EXPLORATION"
        self.mirror_state = "ok"
        self.mirror: sqlite3.Connection | None = None
        try:
            self.mirror = connect(mirror, "NORMAL")
            self._heal()
        except (sqlite3.Error, OSError) as error:
            self._degrade(error)

    def event(
        self, word: str, usage: Usage | None = None, cost: float | None = None, **columns: object
    ) -> int:
        """Append one row of execution_logs; durable when this returns. Returns its id."""
        if word not in events.WORDS:
            raise ValueError(f"not an event word: {word}")
        row = {
            "step_number": self.step,
            "elapsed_seconds": round(self.elapsed(), 3),
            "phase": self.phase,
            "event_type": word,
            **columns,
        }
        if usage is not None:
            row |= {"prompt_tokens": usage.prompt, "completion_tokens": usage.completion}
            row |= {"cached_tokens": usage.cached, "cost_usd": cost}
        return self.insert("execution_logs", row)

    def insert(self, table: str, row: dict) -> int:
        """Insert one row with a time stamp of its own into both copies. Returns its id."""
        row = {"timestamp": stamp(), **{name: self.mask(value) for name, value in row.items()}}
        names = ", ".join(row)
        marks = ", ".join("?" * len(row))
        sql = f"INSERT INTO {table} ({names}) VALUES ({marks})"
        row_id = self.db.execute(sql, list(row.values())).lastrowid
        self._mirror(f"INSERT INTO {table} (id, {names}) VALUES (?, {marks})", [[row_id, *row.values()]])
        return int(row_id or 0)

    def register(self, file_path: str, file_type: str, version: int) -> None:
        """One row of file_registry. A path that is known already keeps its first row."""
        if not self.query("SELECT 1 FROM file_registry WHERE file_path = ?", file_path):
            self.insert("file_registry", {"file_path": file_path, "file_type": file_type, "version": version})

    def checkpoint(self, state: dict[str, str]) -> None:
        """Write session_state in one transaction."""
        now = stamp()
        rows = [[key, self.mask(value), now] for key, value in state.items()]
        self._both("INSERT OR REPLACE INTO session_state (key, value, updated_at) VALUES (?, ?, ?)", rows)

    def prompt(self, name: str, content: str, sha256: str) -> None:
        sql = "INSERT OR REPLACE INTO prompts (name, content, sha256) VALUES (?, ?, ?)"
        self._both(sql, [[name, content, sha256]])

    def state(self) -> dict[str, str]:
        return dict(self.query("SELECT key, value FROM session_state"))

    def query(self, sql: str, *values: object) -> list[tuple]:
        return self.db.execute(sql, values).fetchall()

    def mask(self, value: object) -> object:
        """The run's token never enters the record."""
        if isinstance(value, str) and self.secret and self.secret in value:
            return value.replace(self.secret, HIDDEN)
        return value

    def close_mirror(self) -> None:
        if self.mirror is not None:
            try:
                self.mirror.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                self.mirror.close()
            except sqlite3.Error as error:
                self.mirror_state = f"degraded: {error}"
            self.mirror = None

    def _both(self, sql: str, rows: list[list]) -> None:
        _in_one(self.db, sql, rows)
        self._mirror(sql, rows)

    def _mirror(self, sql: str, rows: list[list]) -> None:
        if self.mirror is None:
            return
        try:
            _in_one(self.mirror, sql, rows)
        except (sqlite3.Error, OSError) as error:
            self._degrade(error)

    def _degrade(self, error: Exception) -> None:
        self.mirror, self.mirror_state = None, f"degraded: {error}"
        self.event(events.MIRROR_DEGRADED, sanitized_output=f"the mirror is no longer written: {error}")

    def _heal(self) -> None:
        """After a crash the mirror can lack the last rows of run.db: copy them over, ids kept."""
        for table in ("execution_logs", "file_registry", "api_requests"):
            (last,) = self.mirror.execute(f"SELECT COALESCE(MAX(id), 0) FROM {table}").fetchone()
            rows = self.query(f"SELECT * FROM {table} WHERE id > ? ORDER BY id", last)
            if rows:
                _in_one(self.mirror, f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)


def _in_one(db: sqlite3.Connection, sql: str, rows: list) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        db.executemany(sql, rows)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def stamp() -> str:
    """UTC, in the very form of SQLite's CURRENT_TIMESTAMP, so that both copies hold the same bytes."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
