"""HOST: reads a run's events for the rest of the host: follows events.jsonl, and what a run's ends say of it.

The rows are the guest's word: any of them may be odd.
"""

from __future__ import annotations

import json
from pathlib import Path

from labkit.gateway.files import parse_line
from labkit.gateway.views import EVENTS


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
            except (ValueError, RecursionError):
                summary = None
            return summary if isinstance(summary, dict) else {"status": "sealed"}
    return None
