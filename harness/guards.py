"""GUEST: the three run-time guards, as three rows. They escalate; they never stop the process.

What a repetition is, and the rungs after the nudge: repetition.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

JUMP, NUDGE = "jump to the final report", "nudge"


@dataclass(frozen=True)
class View:
    """What the guards look at before a step. Money in dollars; repeated: a call that came too often."""

    disk_percent: float
    disk_limit_percent: float
    spent: float
    worst_next: float
    budget: float
    reserve: float
    repeated: str | None


@dataclass(frozen=True)
class Guard:
    """name; what it answers to a View (a reason, or None); what then happens; stop_reason of a jump."""

    name: str
    check: Callable[[View], str | None]
    action: str
    stop_reason: str | None


def _disk(view: View) -> str | None:
    if view.disk_percent > view.disk_limit_percent:
        used, allowed = f"{view.disk_percent:.0f} %", f"{view.disk_limit_percent:.0f} %"
        return f"{used} of the disk's space or of its inodes are used, {allowed} are allowed"
    return None


def _money(view: View) -> str | None:
    if view.spent + view.worst_next > view.budget - view.reserve:
        return f"${view.spent:.4f} of ${view.budget:.2f} spent; the rest is kept for the report"
    return None


def _repetition(view: View) -> str | None:
    return view.repeated


GUARDS = (
    Guard("disk", _disk, JUMP, "disk limit reached"),
    Guard("money", _money, JUMP, "budget exhausted"),
    Guard("repetition", _repetition, NUDGE, None),
)
