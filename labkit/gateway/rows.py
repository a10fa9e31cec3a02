"""HOST: reads a push of the guest: which rows of execution_logs may come in, and what a row is known by."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import marshal
import math
import re
import reprlib

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


@dataclasses.dataclass(slots=True)
class Row:
    """A pushed row: its id, the row, its text as it goes into the ledger, what it is known by."""

    id: int
    body: dict
    text: bytes
    known: bytes
    odd: bool = False  # held under its id is something else


Pairs = list[tuple[object, bytes | None]]


def opened(payload: object) -> tuple[object, Pairs]:
    """(run_id, rows with their texts) of a push, as its body or parsed; nothing is checked yet. BadEvents.

    A text is a piece of the body as it came, where it can stand in the ledger like that: writing a row out
    anew takes longer than reading it. Elsewhere it is None.
    """
    if isinstance(payload, bytes):
        if (pieces := _pieces(payload)) is not None:
            return pieces
        payload = _parsed(payload)
    if not isinstance(payload, dict) or not isinstance(payload.get("events"), list):
        raise BadEvents("the body must be an object with run_id and a list of events")
    return payload.get("run_id"), [(row, None) for row in payload["events"]]


def checked(body: object, text: bytes | None = None) -> Row:
    """BadEvents when it is no whole row, or one that SQLite cannot hold."""
    check_row(body)
    assert isinstance(body, dict)
    return Row(body["id"], body, text_of(body) if text is None else text, known_by(body))


def known_by(body: dict) -> bytes:
    """A digest, the same for rows that say the same, whatever the order of their columns.

    A missing column is null; 1, 1.0 and true are three things.
    """
    said = marshal.dumps([body.get(name) for name in COLUMNS], 0)  # an eighth of the time of JSON
    return hashlib.sha256(said).digest()[:12]


def _parsed(raw: bytes) -> object:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise BadEvents("the body is not JSON") from None


# A push as the harness writes it. What is written otherwise is taken as well, only more slowly.
_FRONT = re.compile(rb'\{"run_id": ?"([^"\\]*)", ?"events": ?\[')
_scan = json.JSONDecoder().scan_once


def _pieces(raw: bytes) -> tuple[str, Pairs] | None:
    """The push cut into its rows; None where a row's bytes can't stand in a line, or it is no such push."""
    front = _FRONT.match(raw)
    if front is None or not raw.isascii() or b"\n" in raw or b"\r" in raw or b"\t" in raw:
        return None
    # Breaks are escaped inside a string: such ones stand between tokens.
    text, at, rows = raw.decode("ascii"), front.end(), []
    try:
        while True:
            body, end = _scan(text, at)
            rows.append((body, raw[at:end]))
            if not text.startswith(",", end):
                break
            at = end + (2 if text.startswith(", ", end) else 1)
    except (StopIteration, ValueError, RecursionError):
        return None
    return (front[1].decode(), rows) if text[end:] == "]}" else None


def check_row(row: object) -> None:
    """BadEvents when it is no whole row, or one that SQLite cannot hold."""
    if not isinstance(row, dict):
        raise BadEvents("an event is not an object")
    event_id = row.get("id")
    if type(event_id) is not int or not 1 <= event_id <= MAX_ID:
        raise BadEvents(f"id {reprlib.repr(event_id)} is not a row id")
    if row.keys() != _NAMES:
        odd = sorted(set(row) ^ _NAMES)  # the guest's words, and the message is logged: short, and quoted
        raise BadEvents(f"event {event_id}: columns missing or unknown: {reprlib.repr(odd)}")
    for value in row.values():
        if value is not None and type(value) is not str and not _storable(value):
            raise BadEvents(f"event {event_id}: a column holds something that SQLite cannot hold")


def _storable(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and -MAX_INTEGER <= value <= MAX_INTEGER
