"""GUEST: the inventory of notes/ and scripts/: what stood there at the end of a step, and what of it is lost.

Lost is what is gone, shortened or changed at the seal. More at a file's end is no loss.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from harness.append_only import Unsupported, protect_folder
from harness.settings import Settings
from harness.sweep import READ, TOPS, Found, Sweep, hash_start, mark
from harness.telemetry import events
from harness.telemetry.recorder import Recorder

MOST_ROWS = 20_000  # files that get a row; all are protected
NAMED = 5
SWEEP_SECONDS, CHECK_SECONDS, HASTY_SECONDS = 5.0, 20.0, 2.0


@dataclass(slots=True)
class Row:
    """One row of workspace_files; the columns stand in telemetry/schema.sql."""

    path: str
    size: int | None
    sha256: str | None
    first_step: int
    last_step: int | None = None
    lost: str | None = None

    def columns(self) -> tuple:
        return self.path, self.size, self.sha256, self.first_step, self.last_step, self.lost


class Inventory:
    """Sweeps after each step, keeps workspace_files, and counts what is lost at the end."""

    def __init__(self, settings: Settings, recorder: Recorder) -> None:
        self.recorder, self.workspace = recorder, settings.paths.workspace
        self.sandbox, self.protects = settings.paths.sandbox, settings.tool_user is not None
        self.sweep = Sweep(self.workspace, self.protects)
        stored = recorder.query("SELECT path, size, sha256, first_step, last_step, lost FROM workspace_files")
        self.rows = {row[0]: Row(*row) for row in stored}
        self.marks: dict[str, tuple[int, int, int]] = {}  # files that need no second hash while unchanged
        self.places = {top: _identity(self.workspace / top) for top in TOPS}
        self.said: set[str] = set()

    def begin(self) -> None:
        """Before the first step. The sandbox too, for `mv workspace elsewhere` would take all along."""
        if self.protects:
            try:
                protect_folder(self.sandbox)
            except (Unsupported, OSError) as error:
                self._say(f"the sandbox cannot be made append-only: {error}")
        self.after_step()

    def after_step(self, seconds: float = SWEEP_SECONDS) -> None:
        """Protect and note what is new, note what is gone."""
        found = self.sweep.run(seconds)
        fresh = [*self._new(found), *self._closed(found), *self._gone(found)]
        self.recorder.workspace_files([row.columns() for row in fresh])
        if found.problem:
            self._say(f"{found.problem}; the run goes on, backups are the guarantee")
        if not found.complete:
            self._say(f"a sweep of notes/ and scripts/ took {seconds:.0f} s; the rest is protected later")
        self._look_at_places()

    def at_the_end(self, hasty: bool) -> int:
        """A last sweep, then every file is compared with its row. Returns how many are lost."""
        limit = HASTY_SECONDS if hasty else CHECK_SECONDS
        self.after_step(limit)
        ends, unchecked = time.monotonic() + limit, 0
        for row in self.rows.values():
            if time.monotonic() < ends:
                self._check(row)
            else:
                unchecked += 1
        if unchecked:
            self._say(f"{unchecked} files were not compared with the inventory for lack of time")
        self.recorder.workspace_files([row.columns() for row in self.rows.values()])
        return sum(row.lost is not None for row in self.rows.values())

    def _new(self, found: Found) -> list[Row]:
        return [self._add(path, None, None) for path in found.written if self._is_free(path)]

    def _closed(self, found: Found) -> list[Row]:
        """A row keeps what was seen first: that is what must still be there."""
        fresh = []
        for file in found.closed:
            row = self.rows.get(file.path)
            if row is None and self._is_free(file.path):
                fresh.append(self._add(file.path, file.size, file.sha256))
            elif row is not None and row.size is None:
                row.size, row.sha256 = file.size, file.sha256
                fresh.append(row)
            elif row is None or (row.size, row.sha256) != (file.size, file.sha256):
                continue
            if file.mark:
                self.marks[file.path] = file.mark
        return fresh

    def _gone(self, found: Found) -> list[Row]:
        """A file that was never closed was never whole: that it went, under a new name say, is no loss."""
        rows = [self.rows[path] for path in found.gone if path in self.rows]
        for row in rows:
            row.lost, row.last_step = (
                None if row.size is None else "gone",
                max(row.first_step, self.recorder.step - 1),
            )
        if lost := [row.path for row in rows if row.lost]:
            self._say(f"{len(lost)} files are gone: {', '.join(lost[:NAMED])}")
        return rows

    def _is_free(self, path: str) -> bool:
        if path in self.rows or not path.isprintable():  # a name that is no UTF-8 cannot stand in the record
            return False
        if len(self.rows) >= MOST_ROWS:
            self._say(f"workspace_files holds the first {MOST_ROWS} files; the others are protected as well")
            return False
        return True

    def _add(self, path: str, size: int | None, sha256: str | None) -> Row:
        self.rows[path] = row = Row(path, size, sha256, self.recorder.step)
        return row

    def _check(self, row: Row) -> None:
        row.lost = self._loss(row)
        if row.lost is None:
            row.last_step = self.recorder.step

    def _loss(self, row: Row) -> str | None:
        if row.size is None:
            return None
        try:
            handle = os.open(self.workspace / row.path, READ)
        except OSError:
            return "gone"
        try:
            info = os.fstat(handle)
            if mark(info) == self.marks.get(row.path):
                return None
            if info.st_size < row.size:
                return "shortened"
            return "changed" if row.sha256 and hash_start(handle, row.size) != row.sha256 else None
        finally:
            os.close(handle)

    def _look_at_places(self) -> None:
        for top, before in self.places.items():
            now = _identity(self.workspace / top)
            if now != before:
                self.places[top] = now
                what = "is back or new" if before is None else "was mounted over, moved or replaced"
                self.recorder.event(
                    events.GUARD, guard_reason=f"{top}/ {what}: it is not the folder it was before"
                )

    def _say(self, what: str) -> None:
        """Each thing once a run of this process."""
        if what not in self.said:
            self.said.add(what)
            self.recorder.event(events.GUARD, guard_reason=what)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        info = os.lstat(path)
    except OSError:
        return None
    return info.st_dev, info.st_ino
