"""HOST: what a row of execution_logs must be to be taken from the guest, and what it is known by."""

from __future__ import annotations

import hashlib
import math
from typing import NamedTuple

from labkit.gateway.files import text_of

# The columns of execution_logs; a contract test compares them with harness/telemetry/schema.sql.
COLUMNS = (
    "id", "step_number", "timestamp", "elapsed_seconds", "phase", "event_type", "tool_name",
    "command_or_input", "sanitized_output", "guard_status", "guard_reason",
    "prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd",
)  # fmt: skip
_NAMES = frozenset(COLUMNS)
MAX_ID = 2**53  # beyond it a JSON number is no longer exact everywhere
MAX_INTEGER = 2**63 - 1  # of SQLite


class BadEvents(ValueError):
    """The pushed rows are not rows of execution_logs; the message says which and why."""


class Row(NamedTuple):
    """A pushed row: as it came, as text, and what it is known by."""

    id: int
    body: dict
    text: bytes
    digest: bytes


def row_of(body: dict) -> Row:
    """Missing columns count as null: a ledger of an earlier kit may have such rows."""
    text = text_of(body)
    # What a row is known by does not depend on the order in which its columns were sent.
    known = text if tuple(body) == COLUMNS else text_of({name: body.get(name) for name in COLUMNS})
    return Row(body.get("id", 0), body, text, hashlib.sha256(known).digest()[:12])


def check_row(row: object) -> None:
    """BadEvents when it is no whole row, or one that SQLite cannot hold."""
    if not isinstance(row, dict):
        raise BadEvents("an event is not an object")
    event_id = row.get("id")
    if type(event_id) is not int or not 1 <= event_id <= MAX_ID:
        raise BadEvents(f"id {event_id!r} is not a row id")
    if row.keys() != _NAMES:
        odd = set(row) ^ _NAMES
        raise BadEvents(f"event {event_id}: columns missing or unknown: {', '.join(sorted(odd))}")
    if any(type(value) is not str and value is not None and not _storable(value) for value in row.values()):
        raise BadEvents(f"event {event_id}: a column holds something that SQLite cannot hold")


def _storable(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return -MAX_INTEGER <= value <= MAX_INTEGER
    return value is None or isinstance(value, str)
