"""HOST: what came of a simulated session: its figures, and what is read of its sealed record."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.simulation.virtual import EPOCH


@dataclass(frozen=True)
class Result:
    """What came of a session. summary: as in summary.json. folder: the sandbox; gone unless it was asked for.

    simulated_seconds: from start to seal, outages included. phases: name, second of its beginning, steps.
    faults: how often each kind was met. billed_usd: what the provider really charged.
    events_sha256: over every row of execution_logs, id and time included.
    """

    summary: dict[str, Any]
    seed: int
    provider: str
    simulated_seconds: float
    wall_seconds: float
    phases: list[dict[str, Any]]
    faults: dict[str, int]
    billed_usd: float
    events_sha256: str
    replayed: dict[str, int] = field(default_factory=dict)
    folder: Path | None = None

    def as_dict(self) -> dict[str, Any]:
        """The same for one seed but for wall_seconds."""
        names = ("seed", "provider", "phases", "faults", "billed_usd", "events_sha256", "replayed")
        shown = {name: getattr(self, name) for name in names}
        shown |= {"simulated_seconds": self.simulated_seconds, "wall_seconds": self.wall_seconds}
        return {**{key: value for key, value in self.summary.items() if key != "sha256"}, **shown}

    def query(self, sql: str, *values: object) -> list[tuple]:
        """Rows of the sealed run.db; the session must have been given a folder."""
        if self.folder is None:
            raise ValueError("simulate(..., folder=PATH) keeps the record")
        return query(self.folder / "telemetry" / "sealed" / "run.db", sql, *values)


def query(database: Path, sql: str, *values: object) -> list[tuple]:
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
        return db.execute(sql, values).fetchall()


def seconds_recorded(database: Path) -> float:
    """To the last row, by the wall clock: a resumed session's time stamps go on from there."""
    if not database.exists():
        return 0.0
    last = query(database, "SELECT strftime('%s', MAX(timestamp)) FROM execution_logs")[0][0]
    return max(0.0, float(last) - EPOCH) if last else 0.0


def phases(database: Path) -> list[dict[str, Any]]:
    begins = (
        "SELECT phase, MIN(elapsed_seconds) FROM execution_logs "
        "WHERE event_type = 'PHASE_STARTED' GROUP BY phase"
    )
    began = dict(query(database, begins))
    # A step in which the phase changes counts where it began.
    sql = (
        "SELECT phase, COUNT(*) FROM (SELECT phase, MIN(id) AS first FROM execution_logs "
        "WHERE step_number > 0 GROUP BY step_number) GROUP BY phase ORDER BY MIN(first)"
    )
    counted = query(database, sql)
    return [{"name": name, "began_at": began.get(name, 0.0), "steps": steps} for name, steps in counted]


def events_hash(database: Path) -> str:
    digest = hashlib.sha256()
    for row in query(database, "SELECT * FROM execution_logs ORDER BY id"):
        digest.update(repr(row).encode("utf-8", errors="replace"))
    return digest.hexdigest()
