"""HOST: the host's own copy of every event and exchange, in one hash chain, and a way to follow the events.

State is rebuilt from the chain when the gateway starts, so a restart loses nothing it acknowledged.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import math
import time
from pathlib import Path

from labkit.gateway import chain
from labkit.gateway.chain import Chain
from labkit.gateway.files import parse_line, read_lines
from labkit.gateway.views import EVENTS, REQUESTS, View

# The columns of execution_logs; a contract test compares them with harness/telemetry/schema.sql.
COLUMNS = (
    "id", "step_number", "timestamp", "elapsed_seconds", "phase", "event_type", "tool_name",
    "command_or_input", "sanitized_output", "guard_status", "guard_reason",
    "prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd",
)  # fmt: skip
MAX_ID = 2**53  # beyond it a JSON number is no longer exact everywhere
MAX_INTEGER = 2**63 - 1  # of SQLite
MAX_BYTES = 4 * 1024**3  # an eight-hour run pushes some tens of MB; a hostile guest must not fill the host
MAX_ROWS = 4_000_000  # each costs this process some hundred bytes of memory
MAX_CONFLICTS = 1000  # told in the ledger with their content; more are only logged
MAX_REFUSED = 100

log = logging.getLogger("labkit.gateway")


class BadEvents(ValueError):
    """The pushed rows are not rows of execution_logs; the message says which and why."""


class ForeignRun(ValueError):
    """The pushed rows belong to another run, or to another start of it."""


class Ledger:
    """Everything heard in one run: each event id once, durable before `accept` returns."""

    def __init__(self, run_dir: Path, run_id: str, nonce: str = "") -> None:
        """nonce: what RUN_STARTED must carry; empty for a run of a kit that had none."""
        self.run_id, self.nonce = run_id, nonce
        self.watermark = 0  # every id up to this one is held
        self._above: set[int] = set()  # ids held beyond a gap
        self._digests: dict[int, bytes] = {}
        self._conflicts: set[tuple[int, bytes]] = set()
        self._refused = 0
        self.sealed_at: float | None = None  # clock of this process (monotonic), for the linger
        self.summary: dict | None = None  # of the run, once it is sealed
        self._chain = Chain(run_dir, self._again)
        self._open(Path(run_dir))
        self._events, self._requests = View(run_dir, "event"), View(run_dir, "exchange")

    def accept(self, payload: object) -> int:
        """Store the rows not yet held and return the watermark. BadEvents, ForeignRun or OSError.

        A row under an id that is held with other content is a conflict: written down, never taken.
        """
        rows = self._checked(payload)
        fresh, conflicts = self._sorted(rows)
        if fresh and (self._chain.size > MAX_BYTES or len(self._digests) + len(fresh) > MAX_ROWS):
            raise OSError(errno.EFBIG, f"{chain.LEDGER} has reached {self._chain.size} bytes")
        records = [("event", row) for row in fresh] + [("conflict", row) for row in conflicts]
        if records:
            self._chain.append(records)
            self._events.append(fresh)
        for row in conflicts:
            self._note_conflict(row)
        was_sealed = self.sealed_at is not None
        for row in fresh:
            self._note(row)
        if self.sealed_at is not None and not was_sealed:
            with contextlib.suppress(OSError):
                self._chain.keep_head()
        return self.watermark

    def conflicts_in(self, payload: dict) -> list[int]:
        """Which ids of a push that was accepted are held with other content."""
        rows = payload["events"]
        return sorted({row["id"] for row in rows if self._digests.get(row["id"]) != _digest(row)})

    def exchange(self, body: dict) -> None:
        """Write one exchange with the provider down; durable when this returns. OSError: it is not held."""
        self._chain.append([("exchange", body)])
        self._requests.append([body])

    def note(self, kind: str, **facts: object) -> None:
        """Write down something that is neither an event nor an exchange (kind: one word). OSError."""
        self._chain.append([(kind, facts)])

    def refused(self, why: str, **facts: object) -> None:
        """Telemetry that was not taken, the first times it happens."""
        self._refused += 1
        if self._refused <= MAX_REFUSED:
            self.note("refused", why=why, **facts)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # a full disk: the chain itself says all that was held
            self.note("stopped")
            self._chain.keep_head()
        for part in (self._events, self._requests, self._chain):
            part.close()

    def _open(self, run_dir: Path) -> None:
        """The first record names the run; each start of a gateway is one more."""
        about = {"run_id": self.run_id, "nonce": self.nonce}
        if self._chain.head.n == 0:
            self._adopt(run_dir, about)
        else:
            self.note("started", **about, **({"broken": self._chain.broken} if self._chain.broken else {}))
        if self._chain.broken:
            log.error("%s: %s; it goes on from there", chain.LEDGER, self._chain.broken)
        self._chain.keep_head()

    def _adopt(self, run_dir: Path, about: dict) -> None:
        """A run that began under a kit without a chain: what it wrote is taken over, and said to be so."""
        events = [row for row in read_lines(run_dir / EVENTS) if type(row.get("id")) is int]
        exchanges = list(read_lines(run_dir / REQUESTS))
        adopted = {"adopted": len(events) + len(exchanges)} if events or exchanges else {}
        records = [("event", row) for row in events] + [("exchange", row) for row in exchanges]
        self._chain.append([("opened", {**about, **adopted}), *records])
        for row in events:
            self._note(row)

    def _again(self, record: dict) -> None:
        """One record that a gateway before this one wrote."""
        body = record.get("body")
        if not isinstance(body, dict):
            return
        if record.get("kind") == "event" and type(body.get("id")) is int:
            self._note(body)
        elif record.get("kind") == "conflict":
            self._conflicts.add((body.get("id", 0), _digest(body)))

    def _checked(self, payload: object) -> list[dict]:
        if not isinstance(payload, dict) or not isinstance(payload.get("events"), list):
            raise BadEvents("the body must be an object with run_id and a list of events")
        if payload.get("run_id") != self.run_id:
            self.refused("another run", run_id=str(payload.get("run_id"))[:80])
            raise ForeignRun(f"this gateway serves run {self.run_id}")
        for row in payload["events"]:
            _check_row(row)
        for row in payload["events"]:
            if self.nonce and row["event_type"] == "RUN_STARTED" and nonce_of(row) != self.nonce:
                self.refused("another start", id=row["id"], nonce=nonce_of(row)[:80])
                raise ForeignRun(f"event {row['id']} belongs to another start of run {self.run_id}")
        return payload["events"]

    def _sorted(self, rows: list[dict]) -> tuple[list[dict], list[dict]]:
        """(rows not held, rows that contradict a held one), each once and in the order they came."""
        fresh: dict[int, dict] = {}
        conflicts: dict[tuple[int, bytes], dict] = {}
        for row in rows:
            digest = _digest(row)
            held = self._digests.get(row["id"]) or (_digest(fresh[row["id"]]) if row["id"] in fresh else None)
            if held is None:
                fresh[row["id"]] = row
            elif held != digest and (row["id"], digest) not in self._conflicts:
                conflicts[row["id"], digest] = row
        room = max(0, MAX_CONFLICTS - len(self._conflicts))
        return list(fresh.values()), list(conflicts.values())[:room]

    def _note_conflict(self, row: dict) -> None:
        self._conflicts.add((row["id"], _digest(row)))
        log.warning("event %d came again with other content: a conflict, kept beside the first", row["id"])

    def _held(self, event_id: int) -> bool:
        return event_id <= self.watermark or event_id in self._above

    def _note(self, row: dict) -> None:
        if self._held(row["id"]):
            return
        self._digests[row["id"]] = _digest(row)
        self._above.add(row["id"])
        while self.watermark + 1 in self._above:
            self.watermark += 1
            self._above.discard(self.watermark)
        if row.get("event_type") == "RUN_SEALED" and self.sealed_at is None:
            self.sealed_at = time.monotonic()
            self.summary = run_summary([row])


def nonce_of(row: dict) -> str:
    """The run's nonce as RUN_STARTED tells it; empty where it tells none."""
    try:
        return str(json.loads(row.get("sanitized_output") or "")["nonce"])
    except (ValueError, LookupError, TypeError):
        return ""


def _digest(row: dict) -> bytes:
    text = json.dumps([row.get(name) for name in COLUMNS])
    return hashlib.sha256(text.encode()).digest()[:12]


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
