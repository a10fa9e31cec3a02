"""GUEST: writes every row twice: run.db (WAL, FULL) first, then the mirror (WAL, NORMAL) under the same id.

A mirror that fails never stops the run: MIRROR_DEGRADED once an outage, another try at each checkpoint, and
MIRROR_HEALED when it holds every row again. A row is given to the mirror when run.db has it, and waited for
before the next one: the copies are never more than one write apart, and equal after each checkpoint.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.money import Usage
from harness.telemetry import events
from harness.telemetry.copies import BY_KEY, each_in_one, in_one, insertion
from harness.telemetry.mirror import FAILURES, Mirror, connect

HIDDEN = "[run token]"


class Recorder:
    """The record of one run. `step` and `phase` are set by the loop and stand on every row."""

    def __init__(
        self, primary: Path, mirror: Path, secret: str, elapsed: Callable[[], float],
        stamped: Callable[[], str] | None = None, shown: tuple[str, str] = ("", ""),
    ) -> None:  # fmt: skip
        """stamped: the wall clock's time as text. shown: a path, and what the record has in its place."""
        self.db = connect(primary, "FULL")
        self.secret = secret
        self.elapsed, self.stamped = elapsed, stamped or stamp
        self.shown = shown if all(shown) else None
        self.step, self.phase = 0, "EXPLORATION"
        self._least_elapsed = 0.0
        self._waiting: list[tuple[str, dict]] = []  # table and row
        self._refused = False  # the last attempt to write what waits failed
        # The figures are final: the mirror's troubles are only its state from here on.
        self.sealing = self.state().get("status") == "sealed"
        self.mirror = Mirror(mirror, self.db)
        self._open_copies()
        self._stored = self.state()
        self._given: dict[str, str] = {}  # last time: the same object is not looked at again
        self._files = Counter(file_type for (file_type,) in self.query("SELECT file_type FROM file_registry"))
        self._settle()

    @property
    def mirror_state(self) -> str:
        """'ok', or 'degraded: why'; waits for the mirror to have what was recorded."""
        self._settle()
        return self.mirror.state

    def event(
        self, word: str, usage: Usage | None = None, cost: float | None = None, later: bool = False,
        **columns: object,
    ) -> int:  # fmt: skip
        """Append one row of execution_logs; durable when this returns. later: see `insert`."""
        if word not in events.WORDS:
            raise ValueError(f"not an event word: {word}")
        row = {
            "step_number": self.step,
            "elapsed_seconds": round(max(self._least_elapsed, self.elapsed()), 3),
            "phase": self.phase,
            "event_type": word,
            **columns,
        }
        if usage is not None:
            row |= {"prompt_tokens": usage.prompt, "completion_tokens": usage.completion}
            row |= {"cached_tokens": usage.cached, "cost_usd": cost}
        return self.insert("execution_logs", row, later)

    def insert(self, table: str, row: dict, later: bool = False) -> int:
        """Insert one row with a time stamp of its own into both copies. Returns its id.

        later: in one transaction with the next row, since nothing will be done before that one is durable;
        returns 0. Whatever is asked of the record finds it.
        """
        row = {"timestamp": self.stamped(), **{name: self.mask(value) for name, value in row.items()}}
        if later:
            self._waiting.append((table, row))
            return 0
        return self._insert([*self._waiting, (table, row)])

    def register(self, file_path: str, file_type: str, version: int) -> None:
        """One row of file_registry. A path that is known already keeps its first row."""
        if not self.query("SELECT 1 FROM file_registry WHERE file_path = ?", file_path):
            row = {"file_path": file_path, "file_type": file_type, "version": version}
            self.insert("file_registry", row, later=True)  # with the call's result
            self._files[file_type] += 1

    def registered(self, file_type: str) -> int:
        """How many files of this type file_registry holds."""
        return self._files[file_type]

    def checkpoint(self, state: dict[str, str]) -> None:
        """Write what waits and what changed of session_state in one transaction. Look after the mirror."""
        now = self.stamped()
        other = {key: value for key, value in state.items() if value is not self._given.get(key)}
        masked = {key: self.mask(value) for key, value in other.items()}
        fresh = {key: value for key, value in masked.items() if self._stored.get(key) != value}
        rows = [{"key": key, "value": value, "updated_at": now} for key, value in fresh.items()]
        if found := [*self._waiting, *(("session_state", row) for row in rows)]:
            self._insert(found)
        self._stored |= fresh
        self._given |= other
        self.tend_mirror()

    def workspace_files(self, rows: list[tuple]) -> None:
        """Rows of workspace_files, in the order of its columns; a known path is replaced."""
        if rows:
            self._both("INSERT OR REPLACE INTO workspace_files VALUES (?, ?, ?, ?, ?, ?)", rows)

    def prompt(self, name: str, content: str, sha256: str) -> None:
        sql = "INSERT OR REPLACE INTO prompts (name, content, sha256) VALUES (?, ?, ?)"
        self._both(sql, [[name, content, sha256]])

    def state(self) -> dict[str, str]:
        return dict(self.query("SELECT key, value FROM session_state"))

    def query(self, sql: str, *values: object) -> list[tuple]:
        self._insert_waiting()
        return self.db.execute(sql, values).fetchall()

    def mask(self, value: object) -> object:
        """The run's token never enters the record. Nor half a character pair: SQLite refuses such a row."""
        if isinstance(value, str) and not value.isascii():
            value = value.encode("utf-8", errors="replace").decode()
        if isinstance(value, str) and self.secret and self.secret in value:
            value = value.replace(self.secret, HIDDEN)
        if self.shown and isinstance(value, str):
            value = value.replace(*self.shown)
        return value

    def tend_mirror(self) -> None:
        """Is the mirror where it was? After a failure: open it anew and give it what it lacks."""
        try:
            if self.mirror.db is not None:
                return self.mirror.look()
            copied = self.mirror.open()
        except FAILURES as error:
            return self._degrade(error)
        self._healed(f"the mirror holds every row again: {copied} rows were copied")
        self._settle()

    def close_mirror(self) -> None:
        if self.mirror.db is not None:
            try:
                self.mirror.shorten()
            except FAILURES as error:
                self.mirror.leave(error)
            self.mirror.close()

    def close(self) -> None:
        """For good: nothing can be recorded or asked any more, and nothing of it stays open."""
        self.mirror.end()
        self.db.close()

    def _insert_waiting(self) -> None:
        if self._waiting:
            self._insert(list(self._waiting))

    def _insert(self, rows: list[tuple[str, dict]]) -> int:
        """Returns the id of the last. What the disk refuses while it waits is tried once more."""
        try:
            ids = each_in_one(self.db, [insertion(table, row) for table, row in rows])
        except BaseException as error:
            self._refused = isinstance(error, sqlite3.OperationalError) and not self._refused
            if not self._refused:
                self._waiting.clear()  # it must not stand in the way of all others
            raise
        self._waiting.clear()
        self._refused = False
        known = [
            insertion(table, _with_id(table, row, at)) for at, (table, row) in zip(ids, rows, strict=True)
        ]
        self._mirror(lambda db: each_in_one(db, known))
        return ids[-1]

    def _both(self, sql: str, rows: list) -> None:
        self._insert_waiting()
        in_one(self.db, sql, rows)
        self._mirror(lambda db: in_one(db, sql, rows))

    def _mirror(self, work: Callable[[sqlite3.Connection], Any]) -> None:
        try:
            self.mirror.write(work)
        except FAILURES as error:
            self._degrade(error)

    def _settle(self) -> None:
        try:
            self.mirror.settle()
        except FAILURES as error:
            self._degrade(error)

    def _degrade(self, error: Exception) -> None:
        """The first failure of an outage is an event; later ones are only the state."""
        first = self.mirror.state == "ok"
        self.mirror.leave(error)
        if first and not self.sealing:
            self.event(events.MIRROR_DEGRADED, sanitized_output=f"the mirror is no longer written: {error}")

    def _healed(self, what: str) -> None:
        if not self.sealing:
            self.event(events.MIRROR_HEALED, sanitized_output=what)

    def _open_copies(self) -> None:
        """After a crash each copy gets what only the other holds."""
        restored, broken = 0, None
        try:
            restored = self.mirror.restore_primary()
            copied = self.mirror.open()
        except FAILURES as error:
            broken = error
        self._continue_from_last_row()
        if restored:
            self._healed(f"run.db had lost {restored} rows that the mirror held; they were copied back")
        if broken is not None and self._in_outage():
            self.mirror.leave(broken)  # it was reported before the restart
        elif broken is not None:
            self._degrade(broken)
        elif self._in_outage():
            self._healed(f"the mirror holds every row again: {copied} rows were copied")

    def _continue_from_last_row(self) -> None:
        """What is recorded before the session is restored must not stand at step 0 and second 0."""
        last = "SELECT step_number, phase, elapsed_seconds FROM execution_logs ORDER BY id DESC LIMIT 1"
        if rows := self.query(last):
            self.step, self.phase, self._least_elapsed = rows[0]

    def _in_outage(self) -> bool:
        """Whether the last word on the mirror is that it failed."""
        words = (events.MIRROR_DEGRADED, events.MIRROR_HEALED)
        last = "SELECT event_type FROM execution_logs WHERE event_type IN (?, ?) ORDER BY id DESC LIMIT 1"
        return self.query(last, *words) == [(events.MIRROR_DEGRADED,)]


def _with_id(table: str, row: dict, at: int) -> dict:
    return row if table in BY_KEY else {"id": at} | row


def stamp() -> str:
    """UTC, in the very form of SQLite's CURRENT_TIMESTAMP, so that both copies hold the same bytes."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
