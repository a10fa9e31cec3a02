"""HOST: reads a run.db for a replay: rows whose columns are there and of their type, whoever wrote them."""

from __future__ import annotations

import json
import math
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

from harness.prompting import BLANK
from labkit.analysis import sqlite_file
from labkit.errors import USAGE, LabError

HINT = "give the run.db of a collected run, or the run's name"
# What is read of a table, and the type that SQLite does not hold anybody to.
EVENTS = {
    **dict.fromkeys(("id", "step_number", "completion_tokens"), int),
    "elapsed_seconds": float,
    **dict.fromkeys(("timestamp", "event_type", "tool_name", "command_or_input", "sanitized_output"), str),
    **dict.fromkeys(("guard_status", "guard_reason"), str),
}
REQUESTS = {
    **dict.fromkeys(("id", "step_number", "attempt", "prompt_tokens"), int),
    **dict.fromkeys(("latency_seconds", "cost_usd"), float),
    **dict.fromkeys(("timestamp", "purpose", "status", "detail", "finish_reason"), str),
}
PROMPTS = dict.fromkeys(("name", "content"), str)
COUNTS = ("id", "step_number", "attempt")  # 0 where they are none


class Record(NamedTuple):
    """rows: events in order. requests: attempts; an old record has none.

    facts: minutes, budget_usd, and the Worker's prompt, as far as they are there.
    """

    rows: list[dict]
    requests: list[dict]
    facts: dict[str, Any]


def read(database: Path) -> Record:
    """Raises LabError (usage) for what is no record."""
    try:
        with sqlite_file.opened(database) as db:
            tables = sqlite_file.tables(db)
            rows = _rows(db, "execution_logs", EVENTS) if "execution_logs" in tables else []
            requests = _rows(db, "api_requests", REQUESTS) if "api_requests" in tables else []
            prompts = _rows(db, "prompts", PROMPTS) if "prompts" in tables else []
    except LabError as error:
        raise LabError(f"{database} can't be replayed: {error.message}", HINT, USAGE) from error
    if not rows:
        raise LabError(f"{database} can't be replayed: it has no events", HINT, USAGE)
    return Record(rows, requests, _facts(rows) | _prompt(prompts))


def _rows(db: sqlite3.Connection, table: str, columns: dict[str, type]) -> list[dict]:
    there = {column[1] for column in db.execute(f"PRAGMA table_info({table})")}
    chosen = ", ".join(name if name in there else f"NULL AS {name}" for name in columns)
    found = db.execute(f"SELECT {chosen} FROM {table} ORDER BY rowid")
    return [
        {name: _fitting(name, value, kind) for (name, kind), value in zip(columns.items(), row, strict=True)}
        for row in found
    ]


def _fitting(name: str, value: Any, kind: type) -> Any:
    """None for a value of another type."""
    if kind is not str and isinstance(value, int | float) and 0 <= value < math.inf:
        return kind(value)
    return value if kind is str and isinstance(value, str) else 0 if name in COUNTS else None


def _prompt(rows: list[dict]) -> dict[str, str]:
    """As it was sent, so every blank in it was filled. One that looks like a blank would be filled again."""
    text = next((row["content"] for row in rows if row["name"] == "worker" and row["content"]), "")
    return {} if not text or BLANK.search(text) else {"prompt": text}


def _facts(rows: list[dict]) -> dict[str, float]:
    for row in rows:
        if row["event_type"] == "RUN_STARTED":
            try:
                facts = json.loads(row["sanitized_output"] or "")
            except (ValueError, RecursionError):
                return {}
            told = facts if isinstance(facts, dict) else {}
            return {name: told[name] for name in ("minutes", "budget_usd") if _is_amount(told.get(name))}
    return {}


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e6
