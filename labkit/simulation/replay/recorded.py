"""HOST: the agents of a recorded run, and its shell and pages, as a simulation asks them."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from pathlib import Path

from labkit.simulation.agents import Agents
from labkit.simulation.chance import Chance
from labkit.simulation.replay.asked import Asked
from labkit.simulation.replay.pace import between
from labkit.simulation.replay.record import read
from labkit.simulation.replay.replies import Attempt, attempts, cut_after
from labkit.simulation.replay.tools import NOT_RECORDED, tool_results
from labkit.simulation.script import Script

FULL = "of the disk's space or of its inodes"  # as harness/guards.py says it


class Recorded(Agents):
    """The agents of a recorded run. Once its replies are used up the diligent ones go on."""

    def __init__(self, database: Path, chance: Chance) -> None:
        super().__init__(Script(), chance)
        rows, requests, self.facts = read(database)
        self.outputs, self.pages = tool_results(rows, requests)
        self.between, self.asked = between(rows, requests), Asked(rows)
        self.attempts: dict[str, deque[Attempt]] = defaultdict(deque)
        for purpose, known in attempts(rows, requests).items():
            self.attempts[purpose] = deque(known)
        self._cut, self.full_from = cut_after(rows, requests), _full_from(rows)
        self.total, self.played = sum(map(len, self.attempts.values())), 0

    def recorded(self, purpose: str) -> Attempt | None:
        """The next attempt of this purpose; None when there is none left."""
        if not self.attempts[purpose]:
            return None
        self.played += 1
        return self.attempts[purpose].popleft()

    def cut_off(self, purpose: str) -> float | None:
        """Where the record was: in its last call, or after its last reply."""
        return None if any(self.attempts.values()) else self._cut

    def shell(self, line: str) -> tuple[str, float, str]:
        """Output, seconds, ending: of the next time this command was run, else of the last."""
        known = self.outputs.get(line)
        if not known:
            return NOT_RECORDED, 1.0, "exit code 0"
        return known.popleft() if len(known) > 1 else known[0]

    def page(self, url: str) -> tuple[str | None, float]:
        """Text and seconds; no text where no page was let through."""
        return self.pages.get(url, (None, 1.0))


def _full_from(rows: list[dict]) -> float:
    """The step before which the guard found the disk full; infinite where it never did."""
    found = (row["step_number"] for row in rows if row["event_type"] == "GUARD" and FULL in _words(row))
    return next(found, math.inf)


def _words(row: dict) -> str:
    return f"{row['guard_reason'] or ''} {row['sanitized_output'] or ''}"
