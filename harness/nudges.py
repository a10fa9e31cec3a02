"""GUEST: tells the Worker the time between steps, and names a repetition. Texts: prompts/nudges/."""

from __future__ import annotations

from harness.clock import spoken
from harness.prompting import fill, text
from harness.repetition import CHANGE, CHANGE_STEPS, NUDGE, Alarm

LEAST_PER_RUN = 8  # a short run still gets its nudges


class Nudges:
    """When the next nudge is due, in active seconds."""

    def __init__(self, every_minutes: float, last: float = 0.0) -> None:
        self.every, self.last = every_minutes * 60, last

    def due(self, elapsed: float, length: float) -> bool:
        """True once per interval; a long step that skips several yields one nudge. length: of the run now."""
        interval = min(self.every, length / LEAST_PER_RUN)
        if elapsed - self.last < interval:
            return False
        self.last = elapsed - elapsed % interval
        return True


def time_nudge(phase: str, elapsed: float, remaining: float) -> str:
    return fill(text(f"nudges/{phase.lower()}"), elapsed=spoken(elapsed), remaining=spoken(remaining))


def repetition_nudge(alarm: Alarm, writer: str) -> str:
    """writer: the tool that can write a note, or whatever the phase is to leave behind."""
    name = {NUDGE: "repetition", CHANGE: "repetition_change"}.get(alarm.rung, "repetition_refused")
    blanks = {"what": alarm.what, "tool": alarm.tool, "steps": str(CHANGE_STEPS), "writer": writer}
    return fill(text(f"nudges/{name}"), **blanks)
