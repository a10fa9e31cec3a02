"""GUEST: the run's final reports: which there are, the model's without tools, one made from the record."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Collection
from pathlib import Path

from harness import prompting, report
from harness.context import Context
from harness.errors import ContextError, EndRun, HarnessError, NoMoney
from harness.model import Model
from harness.replies import ENDINGS, Reply
from harness.sweep import UNSETTLED_NS
from harness.telemetry import events
from harness.text import clean
from harness.tools.base import Desk
from harness.tools.new_files import NotWritten, next_free, notes_folder, write_new

EARLIER_REPORTS = "earlier_reports"  # key in session_state: reports that were there when the run began
LEAST_REPORT_SECONDS = 20.0  # the report call gets this much even when the clock has run out
LOOKED_AT = 4096  # bytes in which a report says something
_REPORT = re.compile(r"final_report(?:_v(\d+))?\.md")


def written_reports(notes: Path, earlier: Collection[str] = ()) -> list[str]:
    """Names of those that say something, lowest version first. earlier: names of other runs' reports."""
    return [name for name in _named(notes) if name not in earlier and _is_written(notes / name)]


def _named(notes: Path) -> list[str]:
    try:
        listed = os.listdir(notes)
    except OSError:
        return []
    names = [name for name in listed if name.startswith("final_report") and _REPORT.fullmatch(name)]
    return sorted(names, key=lambda name: int(_REPORT.fullmatch(name).group(1) or 1))


def _is_written(path: Path) -> bool:
    """A folder or a link of that name is no report (`lab collect` brings no link), nor is blank space."""
    try:
        with open(path, "rb", opener=_plainly) as file:
            return stat.S_ISREG(os.fstat(file.fileno()).st_mode) and bool(file.read(LOOKED_AT).strip())
    except OSError:
        return False


def _plainly(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe of that name would be waited for


class FinalReport:
    """by: who wrote the one that counts, `worker` or `harness`. beside: one that had no room there."""

    def __init__(self, desk: Desk, model: Model, context: Context) -> None:
        self.desk, self.model, self.context = desk, model, context
        self.recorder, self.paths = desk.recorder, desk.settings.paths
        self.by, self.beside = "worker", ""
        self.earlier = set(json.loads(self.recorder.state().get(EARLIER_REPORTS, "[]")))
        self._changed, self._named = 0, []  # of notes/ as it was last read: time of change, reports in it

    def any_yet(self) -> list[str]:
        """As `names`, asked after each step: thousands of notes are read again only when there is another."""
        try:
            changed = os.stat(self.paths.notes).st_ctime_ns  # the other one can be set to what it was
        except OSError:
            return []
        if changed != self._changed:
            self._named = _named(self.paths.notes)
            is_settled = abs(time.time_ns() - changed) > UNSETTLED_NS
            self._changed = changed if is_settled else 0
        found = (name for name in self._named if name not in self.earlier)
        return [name for name in found if _is_written(self.paths.notes / name)]

    def names(self) -> list[str]:
        """This run's, lowest version first; in a guest that was kept there may be older ones."""
        return written_reports(self.paths.notes, self.earlier)

    def last(self) -> str:
        """The report that counts: the highest version."""
        return "".join(f"notes/{name}" for name in self.names()[-1:]) or self.beside

    def build(self, stop_reason: str) -> None:
        """Rung three: from run.db."""
        self.by = "harness"
        text = report.factual(self.recorder, self.desk.settings.run_id, stop_reason)
        self._save(text, "built from run.db by the harness")

    def ask_model(self) -> None:
        """Rung two: the Worker's model with tools off."""
        try:
            reply = self._report_from_model()
        except HarnessError as error:
            self.recorder.event(events.REPORT, sanitized_output=f"the model gave no report: {error}")
            return
        text = clean(reply.text)
        if text.strip():
            self._save(text, text, reply)
        else:
            self.recorder.event(
                events.REPORT, reply.usage, reply.cost, sanitized_output="the model's report is empty"
            )

    def _report_from_model(self) -> Reply:
        """With all it knows; with the digest alone where that is too dear, or where the window is broken."""
        asked = prompting.text("report")
        clock = self.desk.clock
        left = max(LEAST_REPORT_SECONDS, min(clock.remaining(), clock.wall_remaining()))
        try:
            return self.model.ask("report", self.context.outgoing([], asked), deadline=left, patience=left)
        except (NoMoney, ContextError):
            pass
        except EndRun as end:
            if end.stop_reason != ENDINGS["budget_exhausted"]:  # the gateway counts money too, by itself
                raise
        return self.model.ask("report", self.context.brief(asked), deadline=left, patience=left)

    def _save(self, text: str, said: str, reply: object = None) -> None:
        """Write it as the next free notes/final_report_vN.md; beside the record if that is impossible."""
        usage, cost = (reply.usage, reply.cost) if reply else (None, None)  # type: ignore[attr-defined]
        text = str(self.recorder.mask(text))
        try:
            path = self._write_note(text)
        except (NotWritten, OSError, KeyError) as error:
            target = self.paths.telemetry / "final_report_v1.md"
            target.write_text(text, encoding="utf-8", errors="replace")
            path, said = str(target), f"{said} (the workspace could not take it: {error})"
            self.beside = path
        self.recorder.event(events.REPORT, usage, cost, command_or_input=path, sanitized_output=said)

    def _write_note(self, text: str) -> str:
        name = "final_report_v1.md"
        if os.path.lexists(self.paths.notes / name):
            name = next_free(self.paths.notes, name)
        self.paths.notes.mkdir(parents=True, exist_ok=True)
        return write_new(notes_folder(self.paths.notes), name, text, self.recorder, self.desk.owner())
