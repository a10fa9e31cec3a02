"""HOST: reads what there is of a collected run: the ledger, both databases, manifest and summary.

Everything of the guest's is read as data that may be false, odd or huge.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit import plain_file
from labkit.analysis import sqlite_file, sqlite_guard
from labkit.errors import LabError
from labkit.gateway import chain, config
from labkit.gateway.events import run_summary
from labkit.gateway.origin import Boots, nonce_of
from labkit.gateway.rows import COLUMNS

LEDGER = f"gateway/{chain.LEDGER}"
TABLES = ("execution_logs", "file_registry", "api_requests", "prompts", "workspace_files", "session_state")
JSON_BYTES = 16 << 20  # of a summary.json, which has some thousand
MANIFEST_BYTES = 64 << 20  # this host's own; the prompts are in it
KEYS = {"prompts": "name", "workspace_files": "path", "session_state": "key"}  # of the others: id
Row = dict[str, Any]


@dataclass
class Ledger:
    """The host's chain, sorted by what its records are. events: by id. exchanges: by their own id."""

    lines: list[bytes] = field(default_factory=list)
    records: list[dict] = field(default_factory=list)
    events: dict[int, Row] = field(default_factory=dict)
    heard_at: dict[int, str] = field(default_factory=dict)  # host's time, by event id
    exchanges: list[Row] = field(default_factory=list)
    conflicts: list[Row] = field(default_factory=list)
    refused: list[Row] = field(default_factory=list)
    run_id: str = ""
    nonce: str = ""
    boots: Boots = field(default_factory=Boots)  # all of them, whenever they were announced
    adopted: int = 0

    @property
    def sealed(self) -> bool:
        return any(row.get("event_type") == "RUN_SEALED" for row in self.events.values())


@dataclass
class Database:
    """The tables of one database: name -> rows. problem: why it could not be read, '' when it could.

    objects: (kind, name) of all that its schema has.
    """

    tables: dict[str, list[Row]] = field(default_factory=dict)
    problem: str = ""
    objects: list[tuple[str, str]] = field(default_factory=list)

    def rows(self, table: str) -> list[Row]:
        return self.tables.get(table, [])

    @property
    def events(self) -> dict[int, Row]:
        return {row["id"]: row for row in self.rows("execution_logs")}

    @property
    def state(self) -> dict[str, Any]:
        return {str(row.get("key")): row.get("value") for row in self.rows("session_state")}


@dataclass
class Evidence:
    """All that `lab verify` compares."""

    folder: Path
    manifest: dict
    summary: dict
    ledger: Ledger
    run: Database
    mirror: Database

    @property
    def sealed_summary(self) -> dict | None:
        """As the ledger's RUN_SEALED has it, else run.db's; None for a run that was not sealed."""
        heard = run_summary(list(self.ledger.events.values()))
        return heard or run_summary(list(self.run.events.values()))

    @property
    def told(self) -> list[Row]:
        """Every event in order: as the ledger heard it, then what run.db has behind that."""
        last = max(self.ledger.events, default=0)
        behind = {} if self.ledger.sealed else {n: row for n, row in self.run.events.items() if n > last}
        return [row for _, row in sorted((self.ledger.events | behind).items())]

    @property
    def from_disks(self) -> bool:
        """The guest could not be asked any more: what its disks lacked was lost with it."""
        return self.manifest.get("collected") in ("offline", "events")

    @property
    def rebuilt(self) -> bool:
        """run.db was made from the gateway's events and has nothing else in it; this host says so as well."""
        return self.says_rebuilt and self.made_by_host

    @property
    def says_rebuilt(self) -> bool:
        return "rebuilt_from" in self.run.state

    @property
    def made_by_host(self) -> bool:
        """By the manifest: no database of the guest's became run.db."""
        guest = self.manifest.get("guest")
        source = str(guest.get("record")) if isinstance(guest, dict) else ""
        return self.manifest.get("collected") == "events" or source.startswith("the gateway's events")

    @property
    def settings(self) -> dict:
        """What the gateway was started with."""
        return _json(self.folder / "gateway" / config.FILE_NAME)


def read(folder: Path) -> Evidence:
    """Read a run's folder. What cannot be read is empty, and the check that needs it says so."""
    return Evidence(
        folder,
        _json(folder / "manifest.json", MANIFEST_BYTES),
        _json(folder / "summary.json"),
        read_ledger(folder / LEDGER),
        _database(folder / "run.db"),
        _database(folder / "mirror.db"),
    )


def read_ledger(path: Path) -> Ledger:
    ledger = Ledger()
    for record, line in chain.records(path) if path.is_file() else ():
        ledger.lines.append(line)
        ledger.records.append(record)
        if isinstance(record.get("body"), dict):
            _sort(ledger, record, record["body"])
    ledger.exchanges.sort(key=lambda row: row["id"])
    return ledger


def _sort(ledger: Ledger, record: dict, body: Row) -> None:
    kind, number = record.get("kind"), body.get("id")
    if kind == "event" and type(number) is int and number not in ledger.events:
        ledger.events[number] = body
        ledger.heard_at[number] = str(record.get("at"))
    elif kind == "exchange" and type(number) is int:
        ledger.exchanges.append(body)
    elif kind == "conflict":
        ledger.conflicts.append(body)
    elif kind == "refused":
        ledger.refused.append(body)
    elif kind in ("opened", "started"):
        ledger.boots.announce(body)
    if kind == "opened":
        ledger.run_id, ledger.nonce = str(body.get("run_id")), str(body.get("nonce") or "")
        ledger.adopted = body["adopted"] if type(body.get("adopted")) is int else 0


def told_nonce(rows: list[Row]) -> str | None:
    """The nonce that the record's RUN_STARTED tells; None where there is no such row."""
    return next((nonce_of(row) for row in rows if row.get("event_type") == "RUN_STARTED"), None)


def content(row: Row) -> list:
    """A row of execution_logs without its id, for comparing."""
    return [row.get(name) for name in COLUMNS[1:]]


def _database(path: Path) -> Database:
    try:
        with sqlite_file.opened(path) as connection:
            tables = {n: _rows(connection, n) for n in sqlite_file.tables(connection) if n in TABLES}
            for row in tables.get("api_requests", ()):
                row.setdefault("cost_source", None)  # one of two copies may be of an earlier kit
            return Database(tables, objects=sqlite_file.objects(connection))
    except LabError as error:
        return Database(problem=error.message)


def _rows(connection: Any, table: str) -> list[Row]:
    cursor = connection.execute(f"SELECT * FROM {sqlite_file.quoted(table)}")
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, values, strict=True)) for values in sqlite_guard.bounded(cursor)]


def _json(path: Path, most: int = JSON_BYTES) -> dict:
    """Empty for what is no JSON object, or longer than `most` bytes: it is cut there."""
    try:
        value = json.loads(plain_file.read(path, most))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
