"""HOST: the host's own copy of every event that the guest pushed, and a way to follow it.

State is rebuilt from events.jsonl when the gateway starts, so a restart loses nothing it acknowledged.
"""

from __future__ import annotations

import errno
import json
import math
import time
from pathlib import Path

from labkit.gateway.files import JsonLines, parse_line, read_lines

EVENTS = "events.jsonl"
REQUESTS = "requests.jsonl"

# The columns of execution_logs; a contract test compares them with harness/telemetry/schema.sql.
COLUMNS = (
    "id", "step_number", "timestamp", "elapsed_seconds", "phase", "event_type", "tool_name",
    "command_or_input", "sanitized_output", "guard_status", "guard_reason",
    "prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd",
)  # fmt: skip
MAX_ID = 2**53  # beyond it a JSON number is no longer exact everywhere
MAX_INTEGER = 2**63 - 1  # of SQLite
MAX_BYTES = 4 * 1024**3  # an eight-hour run pushes some tens of MB; a hostile guest must not fill the host


class BadEvents(ValueError):
    """The pushed rows are not rows of execution_logs; the message says which and why."""


class ForeignRun(ValueError):
    """The pushed rows belong to another run."""


class Ledger:
    """Events of one run, each id once, durable before `accept` returns."""

    def __init__(self, run_dir: Path, run_id: str) -> None:
        self.run_id = run_id
        self._lines = JsonLines(Path(run_dir) / EVENTS)
        self.watermark = 0  # every id up to this one is held
        self._above: set[int] = set()  # ids held beyond a gap
        self.sealed_at: float | None = None  # clock of this process (monotonic), for the linger
        self.summary: dict | None = None  # of the run, once it is sealed
        for row in read_lines(self._lines.path):
            if type(row.get("id")) is int:
                self._note(row)

    def accept(self, payload: object) -> int:
        """Store the rows not yet held and return the watermark. BadEvents, ForeignRun or OSError."""
        rows = [row for row in self._checked(payload) if not self._held(row["id"])]
        if rows and self._lines.size > MAX_BYTES:
            raise OSError(errno.EFBIG, f"{EVENTS} has reached {MAX_BYTES} bytes")
        if rows:
            self._lines.append(list({row["id"]: row for row in rows}.values()))
        for row in rows:
            self._note(row)
        return self.watermark

    def close(self) -> None:
        self._lines.close()

    def _checked(self, payload: object) -> list[dict]:
        if not isinstance(payload, dict) or not isinstance(payload.get("events"), list):
            raise BadEvents("the body must be an object with run_id and a list of events")
        if payload.get("run_id") != self.run_id:
            raise ForeignRun(f"this gateway serves run {self.run_id}")
        for row in payload["events"]:
            _check_row(row)
        return payload["events"]

    def _held(self, event_id: int) -> bool:
        return event_id <= self.watermark or event_id in self._above

    def _note(self, row: dict) -> None:
        if self._held(row["id"]):
            return
        self._above.add(row["id"])
        while self.watermark + 1 in self._above:
            self.watermark += 1
            self._above.discard(self.watermark)
        if row.get("event_type") == "RUN_SEALED" and self.sealed_at is None:
            self.sealed_at = time.monotonic()
            self.summary = run_summary([row])


def _check_row(row: object) -> None:
    if not isinstance(row, dict):
        raise BadEvents("an event is not an object")
    event_id = row.get("id")
    if type(event_id) is not int or not 1 <= event_id <= MAX_ID:
        raise BadEvents(f"id {event_id!r} is not a row id")
    if odd := set(row) ^ set(COLUMNS):
        raise BadEvents(f"event {event_id}: columns missing or unknown: {', '.join(sorted(odd))}")
    if not all(_storable(value) for value in row.values()):
        raise BadEvents(f"event {event_id}: a column holds something that SQLite cannot hold")


def _storable(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return -MAX_INTEGER <= value <= MAX_INTEGER
    return value is None or isinstance(value, str)


class EventTail:
    """Follows events.jsonl from another process. `poll` returns the complete rows that are new."""

    def __init__(self, run_dir: Path) -> None:
        self.path = Path(run_dir) / EVENTS
        self._offset = 0

    def poll(self) -> list[dict]:
        try:
            with open(self.path, "rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [row for line in whole.splitlines() for row in parse_line(line)]


def run_summary(rows: list[dict]) -> dict | None:
    """The run summary out of a RUN_SEALED row among `rows`; None when there is none."""
    for row in rows:
        if row.get("event_type") == "RUN_SEALED":
            try:
                summary = json.loads(row.get("sanitized_output") or "")
            except ValueError:
                summary = None
            return summary if isinstance(summary, dict) else {"status": "sealed"}
    return None
