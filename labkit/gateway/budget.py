"""HOST: the hard cap: worst case reserved before a call, settled after it, rebuilt from the file on restart.

A call whose answer was lost is charged its worst case: the provider may well have billed it.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
from pathlib import Path

from labkit.gateway import commands
from labkit.gateway.config import GatewayConfig, now_utc
from labkit.gateway.files import JsonLines, read_lines, write_private
from labkit.gateway.ledger import REQUESTS
from labkit.gateway.usage import Usage

# Tokens that a byte of a request body may become. The first call of a run is taken at its densest; then the
# densest call so far, with a margin, stands for the next. A denser one can pass the cap by that one call.
FIRST_DENSITY = 1 / 2
LOWEST_DENSITY = 1 / 6
DENSITY_MARGIN = 1.2
MEASURED_FROM_BYTES = 2000  # shorter bodies are mostly the provider's own framing


@dataclasses.dataclass(frozen=True)
class Reservation:
    """One call under way: its id, its worst case in dollars, and what it was for."""

    id: int
    worst_usd: float
    purpose: str
    model: str
    time: str
    body_bytes: int


class Budget:
    """Money of one run. `spent` is what was charged, `reserved` what calls under way may still cost."""

    def __init__(self, run_dir: Path, config: GatewayConfig) -> None:
        self.config = config
        self._flights = Path(run_dir) / "inflight"
        self._flights.mkdir(mode=0o700, exist_ok=True)
        self._extension = commands.Extension(run_dir)  # `lab extend --budget` raises the cap
        self._lines = JsonLines(Path(run_dir) / REQUESTS)
        rows = list(read_lines(self._lines.path))
        self._densest = 0.0  # tokens a byte
        for row in rows:
            self._measure(row.get("body_bytes"), row.get("prompt_tokens"))
        self.spent = sum(row.get("charged_usd") or 0.0 for row in rows)
        self.reserved = 0.0
        self._ids = itertools.count(max((row.get("id") or 0 for row in rows), default=0) + 1)
        self._charge_lost({row.get("id") for row in rows})

    def reserve(self, purpose: str, model: str, body_bytes: int, max_tokens: int) -> Reservation | None:
        """Set the worst case of a call aside; None when the cap would not hold it."""
        worst = self._price(body_bytes * self._density(), max_tokens)
        if self.spent + self.reserved + worst > self.config.budget_usd + self._extension.usd:
            return None
        reservation = Reservation(next(self._ids), worst, purpose, model, now_utc(), body_bytes)
        write_private(self._flight(reservation.id), json.dumps(dataclasses.asdict(reservation)))
        self.reserved += worst
        return reservation

    def settle(self, reservation: Reservation, status: int | str, usage: Usage, seconds: float) -> None:
        """Charge a call by what is known of it and write its line.

        status: the provider's HTTP status, or a word when there was none (`unreachable`, `lost`, `cut`).
        """
        self.reserved = max(0.0, self.reserved - reservation.worst_usd)
        self._write(reservation, status, usage, round(seconds, 3))

    def close(self) -> None:
        self._lines.close()

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
        if usage.cost_usd is not None:
            return usage.cost_usd
        if usage.prompt_tokens is not None and usage.completion_tokens is not None:
            return self._price(usage.prompt_tokens, usage.completion_tokens)
        refused = status == "unreachable" or (isinstance(status, int) and status >= 400)
        return 0.0 if refused else reservation.worst_usd

    def _write(
        self, reservation: Reservation, status: int | str, usage: Usage, seconds: float | None
    ) -> None:
        charged = self._charge(reservation, status, usage)
        self.spent += charged
        self._measure(reservation.body_bytes, usage.prompt_tokens)
        row = {"id": reservation.id, "time": reservation.time, "purpose": reservation.purpose}
        row |= {"model": reservation.model, "status": status, "body_bytes": reservation.body_bytes}
        row |= dataclasses.asdict(usage)
        self._lines.append([row | {"charged_usd": round(charged, 9), "latency_seconds": seconds}])
        self._flight(reservation.id).unlink(missing_ok=True)

    def _flight(self, request_id: int) -> Path:
        return self._flights / f"{request_id}.json"

    def _charge_lost(self, settled: set) -> None:
        """Calls that a dead gateway left behind: their answers are lost, their cost is not."""
        for path in sorted(self._flights.glob("*.json")):
            if int(path.stem) in settled:
                os.unlink(path)
                continue
            reservation = Reservation(**json.loads(path.read_text(encoding="utf-8")))
            self._write(reservation, "lost", Usage(), None)
            self._ids = itertools.count(max(next(self._ids), reservation.id + 1))
