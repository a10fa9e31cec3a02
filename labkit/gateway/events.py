"""HOST: reads a run's events for the rest of the host: follows events.jsonl, and what a run's ends say of it.

The rows are the guest's word: any of them may be odd.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from labkit.gateway.files import parse_line
from labkit.gateway.views import EVENTS

CHUNK = 16 << 20  # bytes of a poll: a guest gone wild fills 4 GiB


class EventTail:
    """Follows events.jsonl from another process."""

    def __init__(self, run_dir: Path) -> None:
        self.path = Path(run_dir) / EVENTS
        self._offset = 0

    def rows(self) -> Iterator[dict]:
        """All complete rows that are new, read as they are asked for; what is not asked for stays new."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self._offset)
                for line in file:
                    if not line.endswith(b"\n"):
                        return
                    self._offset += len(line)
                    yield from parse_line(line)
        except FileNotFoundError:
            return

    def poll(self) -> list[dict]:
        """The next complete rows that are new: all, or some MB of them and the rest next time."""
        began, rows = self._offset, []
        for row in self.rows():
            rows.append(row)
            if self._offset - began >= CHUNK:
                break
        return rows


def run_summary(rows: Iterable[dict]) -> dict | None:
    """The run summary out of a RUN_SEALED row among `rows`; None when there is none."""
    for row in rows:
        if row.get("event_type") == "RUN_SEALED":
            try:
                summary = json.loads(row.get("sanitized_output") or "")
            except (ValueError, RecursionError):
                summary = None
            return summary if isinstance(summary, dict) else {"status": "sealed"}
    return None
