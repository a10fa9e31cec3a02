"""HOST: which database becomes the record of a run that was not sealed, and the summary it gets.

Owns the choice: the sealed copy, else the longer of run.db and the mirror, else the gateway's own events.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.analysis import sqlite_file, sqlite_guard
from labkit.analysis.load import REFERENCE_TABLES
from labkit.config import REPO
from labkit.errors import LabError
from labkit.gateway.files import read_lines
from labkit.gateway.rows import COLUMNS, MAX_ID
from labkit.gateway.views import EVENTS

SCHEMA = REPO / "harness" / "telemetry" / "schema.sql"
SETTLE_SECONDS = 600
SUMMARY_SECONDS = 60
EVENT_COUNTS = {
    "digest_refreshes": "DIGEST_REFRESH",
    "nudges": "SYSTEM_NUDGE",
    "inspector_reviews": "INSPECTOR_DECISION",
}
FILE_COUNTS = {"notes": "SCRATCHPAD", "scripts": "SCRIPT", "masters": "MASTER_SUMMARY"}
# Money and tokens: every attempt is a row of api_requests; a record rebuilt from events has none of those.
MONEY = ("prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd")


@dataclass
class Record:
    """The databases of a run. source: which one run.db is, as a clause. rows: the id of its last row."""

    run_db: Path | None = None
    mirror_db: Path | None = None
    sealed: bool = False
    source: str = "nothing could be read"
    rows: int = 0
    problems: list[str] = field(default_factory=list)


def choose(folder: Path, gateway: Path) -> Record:
    """The record out of `folder`, where sealed.db, primary.db and mirror.db lie as they were in the guest.

    A write-ahead log that lies beside a database (`-wal`) is replayed. New files are made in `folder`; what
    is not there or does not hold is left out and said. Never raises for what the guest wrote.
    """
    record = Record()
    rows = {name: _settled(folder, name, record.problems) for name in ("sealed", "primary", "mirror")}
    if rows["mirror"] is not None:
        record.mirror_db = folder / "mirror.settled.db"
    if rows["sealed"] is not None:
        record.sealed = True
        return _with(record, folder / "sealed.settled.db", rows["sealed"], "the copy that the harness sealed")
    primary, mirror = rows["primary"], rows["mirror"]
    if primary is not None and primary >= (mirror or 0):
        beside = "no mirror could be read" if mirror is None else f"the mirror has {mirror}"
        return _with(record, folder / "primary.settled.db", primary, f"run.db ({primary} rows; {beside})")
    if mirror is not None:
        beside = "run.db could not be read" if primary is None else f"run.db has {primary}"
        return _with(record, folder / "mirror.settled.db", mirror, f"the mirror ({mirror} rows; {beside})")
    with contextlib.suppress(LabError):
        rebuilt, count = from_events(gateway, folder / "rebuilt.db")
        _with(record, rebuilt, count, f"the gateway's events ({count} rows): no database could be read")
    return record


def _with(record: Record, path: Path, rows: int, source: str) -> Record:
    record.run_db, record.rows, record.source = path, rows, source
    return record


def _settled(folder: Path, name: str, problems: list[str]) -> int | None:
    """Copy the whole, log replayed, into NAME.settled.db; its last row's id, None when it does not hold."""
    source, target = folder / f"{name}.db", folder / f"{name}.settled.db"
    if not source.is_file():
        return None
    try:
        _vacuum(source, target)
        found = sqlite_file.integrity(target)
        if found["integrity"] != "ok":
            raise LabError(found["integrity"])
        if absent := [table for table in REFERENCE_TABLES if table not in found["tables"]]:
            raise LabError(f"no table {', '.join(absent)}")
        return _last_id(target)
    except (LabError, sqlite3.Error, ValueError, TypeError, MemoryError) as error:
        problems.append(f"{name}.db does not hold: {' '.join(str(error).split())[:300]}")
        return None


def _vacuum(source: Path, target: Path) -> None:
    """SQLite's own copy, the write-ahead log included. The copy is a file with no other beside it.

    Never with a rollback journal beside `source`: one may name other files, which SQLite then removes.
    """
    with (
        contextlib.closing(sqlite3.connect(source, timeout=5)) as connection,
        sqlite_file.deadline(connection, SETTLE_SECONDS),
    ):
        sqlite_guard.settle(connection, SETTLE_SECONDS)
        connection.execute("VACUUM INTO ?", (str(target),))


def _last_id(path: Path) -> int:
    with sqlite_file.opened(path) as connection:
        (last,) = connection.execute("SELECT COALESCE(MAX(id), 0) FROM execution_logs").fetchone()
    if type(last) is not int:  # int() of what a guest wrote there may raise anything
        raise LabError("its ids are no whole numbers")
    return last


def from_events(gateway: Path, target: Path) -> tuple[Path, int]:
    """run.db made anew from the rows that the guest pushed to the gateway; returns it and how many rows.

    Only execution_logs has content then. LabError when the gateway holds no row either.
    """
    with contextlib.closing(sqlite3.connect(target)) as connection:
        connection.executescript(SCHEMA.read_text(encoding="utf-8"))
        names, marks = ", ".join(COLUMNS), ", ".join("?" * len(COLUMNS))
        sql = f"INSERT OR IGNORE INTO execution_logs ({names}) VALUES ({marks})"
        rows = (row for row in read_lines(gateway / EVENTS) if _is_row(row))
        with connection:
            connection.executemany(sql, ([_storable(row.get(name)) for name in COLUMNS] for row in rows))
            state = {"run_id": gateway.name, "rebuilt_from": f"gateway/{EVENTS}"}
            connection.executemany("INSERT INTO session_state (key, value) VALUES (?, ?)", state.items())
        (count,) = connection.execute("SELECT COUNT(*) FROM execution_logs").fetchone()
    if not count:
        raise LabError(
            f"nothing of run {gateway.name} is left: no disk of the guest, no event in {gateway / EVENTS}",
            "`lab revert --discard` gives the run up",
        )
    return target, count


def _is_row(row: dict[str, Any]) -> bool:
    return type(row.get("id")) is int and 1 <= row["id"] <= MAX_ID


def _storable(value: object) -> object:
    """The gateway checked each row when it came; the file may have been damaged since."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, bool | int) and abs(value) >= 2**63:
        return None
    return value if value is None or isinstance(value, int | float) else json.dumps(value)


def sealed_summary(path: Path) -> dict[str, Any] | None:
    """The run summary in the record's RUN_SEALED row; None when the run was not sealed."""
    text = "SELECT substr(sanitized_output, 1, 1000000) FROM execution_logs"
    try:
        with sqlite_file.opened(path, SUMMARY_SECONDS) as connection:
            row = connection.execute(f"{text} WHERE event_type = 'RUN_SEALED' LIMIT 1").fetchone()
        summary = json.loads(row[0]) if row else None
    except (LabError, ValueError, TypeError, RecursionError):
        return None
    return summary if isinstance(summary, dict) else None


def unsealed_summary(path: Path, run_id: str) -> dict[str, Any]:
    """A run summary made by the host from the record alone, for a run that nobody sealed.

    The keys are those of docs/interfaces.md; `status` is "unsealed". Figures are None where the record gives
    none within a minute.
    """
    figures = dict.fromkeys((*EVENT_COUNTS, *FILE_COUNTS, *MONEY, "steps", "elapsed_seconds", "events"))
    with (
        contextlib.suppress(LabError),
        sqlite_file.opened(path, SUMMARY_SECONDS) as connection,
    ):
        figures |= _figures(connection)
    report = figures.pop("report", "")
    return {
        "run_id": run_id,
        "status": "unsealed",
        "stop_reason": "interrupted",
        **figures,
        "mirror": "unknown",
        "final_report_written": bool(report),
        "final_report": report,
        "made_by": "the host, from the record",
        "sha256": {},
    }


def _figures(connection: sqlite3.Connection) -> dict[str, Any]:
    def one(sql: str, *values: object) -> Any:
        return connection.execute(sql, values).fetchone()[0]

    words = "SELECT COUNT(*) FROM execution_logs WHERE event_type = ?"
    files = "SELECT COUNT(*) FROM file_registry WHERE file_type = ?"
    known = sqlite_file.tables(connection)
    requests = one("SELECT COUNT(*) FROM api_requests") if "api_requests" in known else 0
    table = "api_requests" if requests else "execution_logs"
    figures = {name: one(words, word) for name, word in EVENT_COUNTS.items()}
    figures |= {name: one(files, kind) for name, kind in FILE_COUNTS.items()}
    figures |= {name: one(f"SELECT COALESCE(SUM({name}), 0) FROM {table}") for name in MONEY}
    blocked = words + " AND guard_status = 'BLOCK'"
    return figures | {
        "cost_usd": round(figures["cost_usd"], 6),
        "inspector_blocks": one(blocked, "INSPECTOR_DECISION"),
        "api_requests": requests or None,
        "unknown_cost_requests": one("SELECT COUNT(*) FROM api_requests WHERE cost_usd IS NULL")
        if requests
        else None,
        "steps": one("SELECT MAX(step_number) FROM execution_logs WHERE typeof(step_number) = 'integer'"),
        "elapsed_seconds": one(
            "SELECT MAX(elapsed_seconds) FROM execution_logs"
            " WHERE typeof(elapsed_seconds) IN ('real', 'integer')"
        ),
        "events": one("SELECT COUNT(*) FROM execution_logs"),
        "report": one(
            "SELECT COALESCE(MAX(substr(file_path, 1, 200)), '') FROM file_registry"
            " WHERE file_path LIKE 'notes/final_report%'"
        ),
    }
