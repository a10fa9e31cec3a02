"""GUEST: an ending that cannot fail: children stopped, a report from some rung, last backup, seal."""

from __future__ import annotations

import contextlib
import functools
import json
import sqlite3
from collections.abc import Callable

from harness import ballast, removals, report, sealed_files
from harness.backup import back_up
from harness.commands import STOPPED
from harness.context import Context
from harness.errors import STOP_REASONS
from harness.final_report import FinalReport
from harness.gateway import GatewayLink
from harness.model import Model
from harness.telemetry import events
from harness.telemetry.copies import integrity
from harness.tools.base import Desk

SEAL_ATTEMPTS = 3  # a disk may fail once
FLUSH_SECONDS, HASTY_FLUSH_SECONDS = 15.0, 3.0
_LAST_EVENTS = "SELECT MAX(id), SUM(event_type = 'RUN_SEALED') FROM execution_logs"


class Ending:
    """Takes a run from its last step to sealed. Every part may fail on its own; the rest goes on."""

    def __init__(self, desk: Desk, model: Model, context: Context, link: GatewayLink) -> None:
        self.desk, self.model, self.context, self.link = desk, model, context, link
        self.recorder, self.settings, self.paths = desk.recorder, desk.settings, desk.settings.paths
        self._complete = False  # RUN_SEALED is recorded: nothing more is
        self.report = FinalReport(desk, model, context)

    def seal(self, stop_reason: str) -> dict:
        """Returns the run summary, as written to summary.json. After it nothing is recorded any more."""
        if stop_reason not in STOP_REASONS:
            self._say(f"{stop_reason!r} is no reason to stop")
            stop_reason = "interrupted"
        hasty = stop_reason in ("interrupted", STOPPED)
        if not self.desk.world.command:  # else nothing was ever started here
            self._try("stopping the children", self.desk.jobs.stop)
        self._try("the report", lambda: self._ensure_report(stop_reason, hasty))
        final_report = self.report.last()
        lost = self._try("the inventory", lambda: self._lost(hasty))
        if not hasty:
            self._try("the last backup", self._back_up)
        self._try("the mirror", self.recorder.tend_mirror)
        checks = self._checks()
        self.recorder.sealing = True
        summary = self._try("the summary", lambda: self._summary(stop_reason, final_report, lost)) or {}
        summary["integrity"] = checks
        return self._close(summary, self._record(summary), hasty)

    def go_on(self, summary: dict) -> dict:
        """After a seal that was cut short: what is left to do. summary: as the first attempt stored it."""
        self.recorder.sealing = True
        last, sealed = self.recorder.query(_LAST_EVENTS)[0]
        if not sealed or "summary" not in self.recorder.state():
            last = self._record(summary, int(last or 0) if sealed else 0)
        if not (done := self._written()):
            return self._close(summary, int(last or 0), hasty=False)
        self._flush(int(last or 0), hasty=False)
        return done

    def _written(self) -> dict | None:
        """summary.json, if nothing is missing of what it stands for."""
        try:
            summary = json.loads(self.paths.summary.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        whole = summary.get("status") == "sealed" and summary.get("sha256") and self.paths.sealed_db.exists()
        return summary if whole else None

    def _close(self, summary: dict, last: int, hasty: bool) -> dict:
        """The record is complete: its sealed copy, summary.json, and the last events to the gateway."""
        if not last:
            summary["status"] = "unsealed"  # the disk took no word of it: another start may seal the run
        self._complete = bool(last)
        sealed = self._try("the sealed copy", self._copy) or self._try("the sealed copy", self._copy)
        summary["sha256"] = {"run.db": sealed} if sealed else {}
        summary["mirror"] = self.recorder.mirror_state  # the last rows can have been too many for it
        written = functools.partial(sealed_files.write_json, self.paths.summary, summary)
        _ = self._try("summary.json", written) or self._try("summary.json", written)
        self._flush(last, hasty)
        return summary

    def _flush(self, last: int, hasty: bool) -> None:
        self.link.flush(last, HASTY_FLUSH_SECONDS if hasty else FLUSH_SECONDS)
        self.link.close()
        self.recorder.close_mirror()

    def _back_up(self) -> bool:
        return back_up(self.settings, self.recorder, self.desk.stop, self.desk.world.backup)

    def _try(self, what: str, action: Callable[[], object]) -> object:
        try:
            return action()
        except Exception as error:  # the ending goes on whatever one part does
            self._say(f"{what} failed: {error}")
            return None

    def _say(self, what: str) -> None:
        with contextlib.suppress(sqlite3.Error):
            if not self._complete:
                self.recorder.event(events.GUARD, guard_reason=what)
                return
        print(f"harness: {what}", flush=True)

    def _ensure_report(self, stop_reason: str, hasty: bool) -> None:
        """The ladder after rung one, the Worker with tools."""
        ballast.free(self.paths.tmp)
        if not hasty and not self.report.names():
            self._try("the model's report", self.report.ask_model)
        if not self.report.last():
            self.report.build(stop_reason)

    def _checks(self) -> dict[str, str]:
        """What SQLite says of both copies: 'ok', or what is wrong. A damaged record is sealed too."""
        found = {"run.db": integrity(self.recorder.db), "mirror": self.recorder.mirror.check()}
        for name, answer in found.items():
            if answer not in ("ok", "not open"):
                self._say(f"the integrity check failed: {name}: {answer}")
        return found

    def _lost(self, hasty: bool) -> int | None:
        return self.desk.inventory.at_the_end(hasty) if self.desk.inventory else None

    def _summary(self, stop_reason: str, final_report: object, lost: object) -> dict:
        summary = {"run_id": self.settings.run_id, "status": "sealed", "stop_reason": stop_reason}
        summary["elapsed_seconds"] = round(self.desk.clock.elapsed(), 3)
        summary |= report.counts(self.recorder)
        summary["events"] += 1  # RUN_SEALED itself
        summary |= {"files_lost": lost, **removals.counts(self.paths, self.recorder)}
        return summary | {
            "mirror": self.recorder.mirror_state,
            "final_report_written": bool(final_report),
            "final_report": final_report,
            "final_report_by": self.report.by,
            "sha256": {},  # of a file that holds this row: it can only stand in summary.json
        }

    def _record(self, summary: dict, last: int = 0) -> int:
        """Summary and RUN_SEALED; a failure is an event, so that the figures are made anew. 0: it cannot be.

        last: id of the RUN_SEALED that there is already.
        """
        for _ in range(SEAL_ATTEMPTS):
            held = self._try("counting the events", lambda: self.recorder.query(_LAST_EVENTS)[0][0])
            summary["events"] = int(held or 0) + (not last)  # type: ignore[call-overload]
            text = json.dumps(summary)
            if self._try("the checkpoint", functools.partial(self._store, text)):
                said = functools.partial(self.recorder.event, events.RUN_SEALED, sanitized_output=text)
                last = last or int(self._try("RUN_SEALED", said) or 0)  # type: ignore[call-overload]
                if last:
                    break
        return last

    def _store(self, text: str) -> bool:
        told = {"run_id": self.settings.run_id, "status": "sealed", "summary": text}
        self.recorder.checkpoint(told)
        return True

    def _copy(self) -> str:
        return sealed_files.copy(self.recorder.db, self.paths.sealed_db)
