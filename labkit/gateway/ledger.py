"""HOST: the host's own copy of every event and exchange, in one hash chain. Owns what may go into it.

State is rebuilt from the chain when the gateway starts, so a restart loses nothing it acknowledged.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
import time
from pathlib import Path
from typing import NamedTuple

from labkit.gateway import chain
from labkit.gateway.chain import Chain
from labkit.gateway.events import run_summary
from labkit.gateway.files import read_lines, text_of
from labkit.gateway.origin import TOLD_BY, Origin
from labkit.gateway.rows import BadEvents, Pairs, Row, checked, known_by, opened
from labkit.gateway.views import EVENTS, REQUESTS, View, request_line

MAX_BYTES = 4 * 1024**3  # an eight-hour run pushes some tens of MB; a hostile guest must not fill the host
MAX_ROWS = 4_000_000  # each costs this process some hundred bytes of memory
MAX_CONFLICTS = 1000  # told in the ledger; more are only answered
CONFLICT_BYTES = 1024  # that the ledger keeps of each: the held row is the one that counts
MAX_REFUSED = 100

log = logging.getLogger("labkit.gateway")


class ForeignRun(ValueError):
    """The pushed rows belong to another run, or to another start of it."""


class Answer(NamedTuple):
    """What a push is told. conflicts: ids of its rows that are held with other content."""

    watermark: int
    conflicts: list[int]


class Ledger:
    """Everything heard in one run: each event id once, durable before `accept` returns. For any thread."""

    def __init__(self, run_dir: Path, run_id: str, nonce: str = "", boot_id: str = "") -> None:
        """nonce: what RUN_STARTED must carry; empty for a run of a kit that had none.

        boot_id: the guest's boot from now on, as this host saw it; empty where it did not.
        """
        self.run_id, self._origin = run_id, Origin(nonce, boot_id)
        self.watermark = 0  # every id up to this one is held
        self._above: set[int] = set()  # ids held beyond a gap
        self._held: dict[int, bytes] = {}  # id -> digest of what its row says: no repeat reads the ledger
        self._conflicts: set[tuple[int, str]] = set()
        self.under_way: dict[int, dict] = {}  # id -> a model call that is reserved and not settled
        self._refused = 0
        self._lock = threading.RLock()  # one writes; the others wait, also for its fsync
        self.sealed_at: float | None = None  # clock of this process (monotonic), for the linger
        self.summary: dict | None = None  # of the run, once it is sealed
        self._chain = Chain(run_dir, self._again)
        self._open(Path(run_dir))
        self._events, self._requests = View(run_dir, "event"), View(run_dir, "exchange")

    def accept(self, payload: object) -> Answer:
        """Store the rows not yet held; durable on return. BadEvents, ForeignRun or OSError.

        payload: the body of a push, parsed or as it came. A row under an id that is held with other content
        is a conflict: written down, never taken.
        """
        (answer,) = self.accept_all([payload])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def accept_all(self, payloads: list[object]) -> list[Answer | Exception]:
        """Store what several pushes bring, in their order, with one fsync. An answer or an error for each.

        Nothing is answered before all of it is durable in the ledger, and to be read in events.jsonl: where
        the disk takes none, each that brought something fails.
        """
        with self._lock:
            pushes = [self._rows_of(payload) for payload in payloads]
            told = [push for push in pushes if not isinstance(push, Exception)]
            try:
                self._take([row for rows in told for row in rows])
            except OSError as error:
                return [self._failed(push, error) for push in pushes]
            return [push if isinstance(push, Exception) else self._answer(push) for push in pushes]

    def _rows_of(self, payload: object) -> list[Row] | Exception:
        try:
            return self._checked(*opened(payload))
        except (BadEvents, ForeignRun, OSError) as error:
            return error

    def _take(self, rows: list[Row]) -> None:
        fresh, conflicts = self._sorted(rows)
        records = [("event", row.text) for row in fresh]
        records += [("conflict", text_of(_conflict_of(row))) for row in conflicts]
        if records:
            self._demand_room(len(fresh), sum(len(text) for _, text in records))
            self._chain.append_texts(records)
        if fresh:
            self._events.append_lines(b"\n".join([*(row.text for row in fresh), b""]))
        for row in conflicts:
            self._conflicts.add((row.id, row.known.hex()))
            log.warning("event %d came again with other content: a conflict, told beside the first", row.id)
        was_sealed = self.sealed_at is not None
        for row in fresh:
            self._note(row.body, row.known)
        if self.sealed_at is not None and not was_sealed:
            with contextlib.suppress(OSError):
                self._chain.keep_head()

    def _demand_room(self, rows: int = 0, size: int = 0) -> None:
        if self._chain.size + size > MAX_BYTES or len(self._held) + rows > MAX_ROWS:
            raise OSError(errno.EFBIG, f"{chain.LEDGER} has reached {self._chain.size} bytes")

    def _answer(self, rows: list[Row]) -> Answer:
        return Answer(self.watermark, sorted({row.id for row in rows if row.odd}))

    def _failed(self, push: list[Row] | Exception, error: OSError) -> Answer | Exception:
        """Of a batch that the disk did not take: what was held before is still true."""
        if isinstance(push, Exception):
            return push
        return error if any(row.odd or row.id not in self._held for row in push) else self._answer(push)

    def reserve(self, number: int, body: dict) -> None:
        """Write down that model call `number` is about to go out; durable on return. OSError: it is not."""
        with self._lock:
            self._demand_room()  # calls that cost nothing (refused, unreachable) would fill it otherwise
            self._chain.append([("reserved", body)])
            self.under_way[number] = body

    def exchange(self, body: dict) -> None:
        """Write one exchange with the provider down; durable when this returns. OSError: it is not held."""
        with self._lock:
            self._chain.append([("exchange", body)])
            self.under_way.pop(body.get("id", 0), None)
            self._requests.append_lines(request_line(body))

    def note(self, kind: str, **facts: object) -> None:
        """Write down something that is neither an event nor an exchange (kind: one word). OSError."""
        with self._lock:
            self._chain.append([(kind, facts)])

    def refused(self, why: str, **facts: object) -> None:
        """Telemetry that was not taken, the first times it happens."""
        self._refused += 1
        if self._refused <= MAX_REFUSED:
            self.note("refused", why=why, **facts)

    def close(self) -> None:
        with self._lock:
            with contextlib.suppress(OSError):  # a full disk: the chain itself says all that was held
                self.note("stopped")
                self._chain.keep_head()
            for part in (self._events, self._requests, self._chain):
                part.close()

    def _open(self, run_dir: Path) -> None:
        """The first record names the run; each start of a gateway is one more."""
        about = {"run_id": self.run_id, **self._origin.facts}
        odd = {"broken": self._chain.broken, "restored": self._chain.restored}
        if self._chain.head.n == 0:
            self._adopt(run_dir, about)
        else:
            self.note("started", **about, **{name: value for name, value in odd.items() if value})
        self._origin.boots.announce(about)
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
            self._note(row, known_by(row))

    def _again(self, record: dict) -> None:
        """One record that a gateway before this one wrote."""
        kind, body = record.get("kind"), record.get("body")
        if not isinstance(body, dict):
            return
        number = body.get("id")
        if kind in ("opened", "started"):
            self._origin.boots.announce(body)
        elif kind == "event" and type(number) is int:
            self._note(body, known_by(body))
        elif kind == "conflict" and type(number) is int:
            self._conflicts.add((number, str(body.get("digest") or known_by(body).hex())))
        elif kind == "reserved" and type(number) is int:
            self.under_way[number] = body
        elif kind == "exchange" and type(number) is int:
            self.under_way.pop(number, None)

    def _checked(self, run_id: object, pairs: Pairs) -> list[Row]:
        if run_id != self.run_id:
            self.refused("another run", run_id=str(run_id)[:80])
            raise ForeignRun(f"this gateway serves run {self.run_id}")
        rows = [checked(body, text) for body, text in pairs]
        for row in rows:
            if row.body["event_type"] in TOLD_BY and (other := self._origin.other(row.body)):
                self.refused(**other, id=row.id)
                raise ForeignRun(f"event {row.id} belongs to {other['why']} of run {self.run_id}")
        return rows

    def _sorted(self, rows: list[Row]) -> tuple[list[Row], list[Row]]:
        """(rows not held, rows that contradict a held one), each once and in the order they came."""
        fresh: dict[int, Row] = {}
        conflicts: dict[tuple[int, str], Row] = {}
        for row in rows:
            held = self._held.get(row.id) or fresh.setdefault(row.id, row).known
            row.odd = row.known != held
            if row.odd and (row.id, row.known.hex()) not in self._conflicts:
                conflicts[row.id, row.known.hex()] = row
        room = max(0, MAX_CONFLICTS - len(self._conflicts))
        return list(fresh.values()), list(conflicts.values())[:room]

    def _note(self, body: dict, known: bytes) -> None:
        number = body["id"]
        if number in self._held:
            return
        self._held[number] = known
        if number == self.watermark + 1:
            self.watermark = number
            while self.watermark + 1 in self._above:
                self.watermark += 1
                self._above.discard(self.watermark)
        else:
            self._above.add(number)
        if body.get("event_type") == "RUN_SEALED" and self.sealed_at is None:
            self.summary = run_summary([body])  # before: who sees the seal reads it
            self.sealed_at = time.monotonic()


def _conflict_of(row: Row) -> dict:
    return {"id": row.id, "digest": row.known.hex(), "text": row.text[:CONFLICT_BYTES].decode("ascii")}
