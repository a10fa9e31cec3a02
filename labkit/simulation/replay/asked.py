"""HOST: what a person asked of a recorded session, asked again after the same step."""

from __future__ import annotations

import json
from collections import deque

from labkit.gateway.command_rules import NAMES
from labkit.simulation.replay.pace import seconds


class Asked:
    """The COMMAND events of a record. Several behind one step keep their distance: a pause lasts as long."""

    def __init__(self, rows: list[dict]) -> None:
        self._left: deque[tuple[int, float, dict]] = deque()
        self._last = 0.0
        step, moment = -1, 0.0
        for row in rows:
            if row["event_type"] == "COMMAND" and (command := _command(row)):
                now = seconds(row["timestamp"])
                distance = max(0.0, now - moment) if row["step_number"] == step else 0.0
                self._left.append((row["step_number"], distance, command))
                step, moment = row["step_number"], now

    def due(self, step: int, now: float) -> list[dict]:
        """What is asked now that this step is over. now: seconds of the simulation."""
        found = []
        while self._left and self._left[0][0] <= step and self._last + self._left[0][1] <= now:
            found.append(self._left.popleft()[2])
            self._last = now
        return found


def _command(row: dict) -> dict | None:
    try:
        command = json.loads(row["command_or_input"] or "")
    except (ValueError, RecursionError):
        return None
    is_one = isinstance(command, dict) and command.get("name") in NAMES
    return command if is_one and isinstance(command.get("args"), dict) else None
