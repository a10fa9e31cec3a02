"""HOST: the hard cap: worst case reserved before a call, settled after it, rebuilt from the file on restart.

A call whose answer was lost is charged its worst case: the provider may well have billed it.
"""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

from labkit.gateway import commands
from labkit.gateway.config import GatewayConfig, now_utc
from labkit.gateway.days import Days
from labkit.gateway.files import read_lines
from labkit.gateway.ledger import Ledger
from labkit.gateway.usage import Usage
from labkit.gateway.views import REQUESTS

# Tokens that a byte of a request body may become. The first call of a run is taken at its densest; then the
# densest call so far, with a margin, stands for the next. A denser one can pass the cap by that one call.
FIRST_DENSITY = 1 / 2
LOWEST_DENSITY = 1 / 6
DENSITY_MARGIN = 1.2
MEASURED_FROM_BYTES = 2000  # shorter bodies are mostly the provider's own framing
BROKEN_OFF = ("cut", "lost")  # of a stream that ends early the figures so far may be a part of the bill
# The word of a proxy that waited no longer: behind it the work may have been done, and billed.
MAYBE_DONE = (408, 504, 522, 524)


class NoMoney(Exception):
    """A cap does not hold the worst case of a call; the message says which."""


@dataclasses.dataclass(frozen=True)
class Reservation:
    """One call under way: its id, its worst case in dollars, and what it was for."""

    id: int
    worst_usd: float
    purpose: str
    model: str
    time: str
    body_bytes: int
    seen: dict = dataclasses.field(default_factory=dict)  # hashes for the ledger, see witness.py

    @property
    def day(self) -> str:
        """In UTC."""
        return self.time[:10]


class Budget:
    """Money of one run. `spent` is what was charged, `reserved` what calls under way may still cost."""

    def __init__(self, run_dir: Path, config: GatewayConfig, ledger: Ledger) -> None:
        self.config, self.ledger = config, ledger
        self._extension = commands.Extension(run_dir)  # `lab extend --budget` raises the cap
        rows = list(read_lines(Path(run_dir) / REQUESTS))
        self._densest = 0.0  # tokens a byte
        for row in rows:
            self._measure(row.get("body_bytes"), row.get("prompt_tokens"))
        self.spent = sum(row.get("charged_usd") or 0.0 for row in rows)
        self.reserved = 0.0
        self._ids = itertools.count(max((row.get("id") or 0 for row in rows), default=0) + 1)
        self.days = _days(config)
        self.days.begin(_by_day(rows))
        self._charge_lost()

    def reserve(
        self, purpose: str, model: str, body_bytes: int, max_tokens: int, seen: dict | None = None
    ) -> Reservation:
        """Set the worst case of a call aside. NoMoney when a cap would not hold it.

        seen: hashes of the request, for the ledger.
        """
        worst = self._price(body_bytes * self._density(), max_tokens)
        cap = self.config.budget_usd + self._extension.usd
        if self.spent + self.reserved + worst > cap:
            said = f"${self.spent:.4f} spent, ${self.reserved:.4f} reserved"
            raise NoMoney(f"the budget of ${cap:g} does not hold this call: {said}")
        number = next(self._ids)
        reservation = Reservation(number, worst, purpose, model, now_utc(), body_bytes, seen or {})
        if not self.days.takes(reservation.day, worst):
            said = f"${self.days.spent(reservation.day):.4f} spent today by all runs of this host"
            raise NoMoney(
                f"the day's ${self.days.cap_usd:g} (run_day_budget_usd) do not hold this call: {said}"
            )
        try:
            self.ledger.reserve(number, vars(reservation))
        except OSError:
            self.days.add(reservation.day, -worst)
            raise
        self.reserved += worst
        return reservation

    def settle(
        self,
        reservation: Reservation,
        status: int | str,
        usage: Usage,
        seconds: float,
        said: dict | None = None,
    ) -> None:
        """Charge a call by what is known of it and write its line.

        status: the provider's HTTP status, or a word when there was none (`unreachable`, `lost`, `cut`).
        said: hashes of the reply, for the ledger.
        """
        try:
            self._write(reservation, status, usage, round(seconds, 3), said)
        finally:  # what was set aside goes when the charge is counted, however full the disk
            self.reserved = max(0.0, self.reserved - reservation.worst_usd)
            self.days.add(reservation.day, -reservation.worst_usd)

    def _density(self) -> float:
        if not self._densest:
            return FIRST_DENSITY
        return min(FIRST_DENSITY, max(LOWEST_DENSITY, self._densest * DENSITY_MARGIN))

    def _measure(self, body_bytes: int | None, prompt_tokens: int | None) -> None:
        if prompt_tokens and body_bytes and body_bytes >= MEASURED_FROM_BYTES:
            self._densest = max(self._densest, prompt_tokens / body_bytes)

    def _price(self, prompt_tokens: float, completion_tokens: float) -> float:
        config = self.config
        dollars = prompt_tokens * config.price_input_per_mtok
        return (dollars + completion_tokens * config.price_output_per_mtok) / 1e6

    def _charge(self, reservation: Reservation, status: int | str, usage: Usage) -> float:
        known = self._known(usage)
        if known is None:
            refused = isinstance(status, int) and status >= 400 and status not in MAYBE_DONE
            return 0.0 if refused or status == "unreachable" else reservation.worst_usd
        if status in BROKEN_OFF and usage.finish_reason is None:
            return max(known, reservation.worst_usd)
        return known

    def _known(self, usage: Usage) -> float | None:
        """What it cost by the reply's own figures."""
        if usage.cost_usd is not None:
            return usage.cost_usd
        if usage.prompt_tokens is None or usage.completion_tokens is None:
            return None
        return self._price(usage.prompt_tokens, usage.completion_tokens)

    def _write(
        self,
        reservation: Reservation,
        status: int | str,
        usage: Usage,
        seconds: float | None,
        said: dict | None = None,
    ) -> None:
        """Count the charge, then write it down. OSError: it is counted, and this call is lost on restart."""
        charged = self._charge(reservation, status, usage)
        self.spent += charged
        self._measure(reservation.body_bytes, usage.prompt_tokens)
        row = {"id": reservation.id, "time": reservation.time, "purpose": reservation.purpose}
        row |= {"model": reservation.model, "status": status, "body_bytes": reservation.body_bytes}
        row |= vars(usage)
        row |= {"charged_usd": round(charged, 9), "latency_seconds": seconds}
        try:
            self.ledger.exchange(row | {"seen": {**reservation.seen, **(said or {})}})
        finally:
            self.days.add(reservation.day, charged)

    def _charge_lost(self) -> None:
        """Calls that a dead gateway left behind: their answers are lost, their cost is not."""
        for _, body in sorted(self.ledger.under_way.items()):
            reservation = Reservation(**body)
            self._write(reservation, "lost", Usage(), None)
            self._ids = itertools.count(max(next(self._ids), reservation.id + 1))


def _days(config: GatewayConfig) -> Days:
    paid = config.provider != "rehearsal"  # whose dollars nobody pays
    folder = Path(config.days_dir) if config.days_dir and paid else None
    return Days(folder, config.run_id, config.day_budget_usd)


def _by_day(rows: list[dict]) -> dict[str, float]:
    days: dict[str, float] = {}
    for row in rows:
        day = str(row.get("time"))[:10]
        days[day] = days.get(day, 0.0) + (row.get("charged_usd") or 0.0)
    return days
