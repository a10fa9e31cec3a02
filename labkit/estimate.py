"""HOST: what a run may cost and write, said before it starts: the reference run's pace, scaled."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from labkit.analysis.text import dollars
from labkit.errors import LabError

# The reference run: minutes, dollars billed, million tokens in and out, at these prices a million.
MINUTES, DOLLARS, MTOK_IN, MTOK_OUT, PRICE_IN, PRICE_OUT = 120.0, 1.15, 11.3, 0.43, 0.10, 0.20
# GiB that overlays and backups may take. A rehearsal writes less than one; the rest is a guess with room.
DISK_BASE_GB, DISK_GB_AN_HOUR = 2.0, 0.5


@dataclass(frozen=True)
class Estimate:
    """Million tokens in and out, dollars, GiB that a run may write, and GiB that are free for it."""

    mtok_in: float
    mtok_out: float
    dollars: float
    disk_gb: float
    free_gb: float

    def as_dict(self) -> dict[str, Any]:
        return {name: round(value, 3) for name, value in asdict(self).items()}


def of(minutes: float, price_in: float, price_out: float, folder: Path) -> Estimate:
    """minutes: of the run. Prices in dollars per million tokens. folder: where the lab's disks lie."""
    share = minutes / MINUTES
    # Billed was less than tokens times price (cached reads); the same share is assumed here.
    discount = DOLLARS / (MTOK_IN * PRICE_IN + MTOK_OUT * PRICE_OUT)
    dollars = share * discount * (MTOK_IN * price_in + MTOK_OUT * price_out)
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free / 2**30
    return Estimate(share * MTOK_IN, share * MTOK_OUT, dollars, _disk(minutes), free)


def _disk(minutes: float) -> float:
    return DISK_BASE_GB + DISK_GB_AN_HOUR * minutes / 60


def lines(estimate: Estimate, minutes: float, budget_usd: float, paid: bool) -> list[str]:
    """The estimate for a person."""
    said = []
    if paid:
        tokens = f"{estimate.mtok_in:.1f} M tokens in and {estimate.mtok_out:.2f} M out"
        said.append(
            f"estimate for {minutes:.0f} min at the reference run's pace: ${estimate.dollars:.2f}, {tokens};"
            f" the cap is {dollars(budget_usd)}"
        )
        if estimate.dollars > budget_usd:
            reached = minutes * budget_usd / estimate.dollars
            said.append(f"the cap may end this run after about {reached:.0f} min")
    said.append(f"disk: the run may write {estimate.disk_gb:.1f} GiB, {estimate.free_gb:.0f} GiB are free")
    return said


def demand_disk(estimate: Estimate, folder: Path) -> None:
    """LabError when the disk would fill up: the guest is then paused in the middle of the run."""
    if estimate.free_gb < estimate.disk_gb:
        raise LabError(
            f"{estimate.free_gb:.1f} GiB are free at {folder}, and the run may write {estimate.disk_gb:.1f}",
            "free some, or a shorter run with --minutes; `--no-preflight` starts all the same",
        )
