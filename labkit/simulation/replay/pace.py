"""HOST: where the time of a recorded run went that no script names: reviews, pauses, backups, the harness."""

from __future__ import annotations

from collections import defaultdict

from harness.model import FIRST_BACKOFF
from harness.replies import ODD_REPLIES

# Rows that stand at the last step and come after it.
AFTER_STEPS = (
    "BACKUP",
    "REPORT",
    "GUARD",
    "RUN_SEALED",
    "COMMAND",
    "RESUMED",
    "MIRROR_DEGRADED",
    "MIRROR_HEALED",
)


def reviewing(requests: list[dict]) -> dict[int, float]:
    """Charged seconds that the Inspector took, by step: its attempts, and the pauses after an odd reply."""
    took: dict[int, float] = defaultdict(float)
    for row in requests:
        if row["purpose"] == "inspector":
            took[row["step_number"]] += _charged(row)
    return took


def _charged(request: dict) -> float:
    """Seconds of an attempt, and of the pause after an odd reply; an outage's pause is not charged."""
    is_odd = request["status"] in ODD_REPLIES
    pause = FIRST_BACKOFF * 2 ** min((request["attempt"] or 1) - 1, 8) if is_odd else 0.0
    return (request["latency_seconds"] or 0.0) + pause


def between(rows: list[dict], requests: list[dict]) -> list[float]:
    """Seconds of each step that neither a model nor a tool took: backups, and the harness itself."""
    if not requests:
        return []
    known: dict[int, float] = defaultdict(float)
    for request in requests:
        if request["purpose"] != "inspector":  # its time lies within a tool's
            known[request["step_number"]] += _charged(request)
    called, ends = 0.0, {0: 0.0}
    for row in rows:
        step, elapsed = row["step_number"] or 0, row["elapsed_seconds"] or 0.0
        if row["event_type"] == "TOOL_CALL":
            called = elapsed
        elif row["event_type"] == "TOOL_RESULT":
            known[step] += elapsed - called
        if row["event_type"] not in AFTER_STEPS:
            ends[step] = elapsed
    steps = sorted(ends)
    spans = zip(steps, steps[1:], strict=False)
    return [round(max(0.0, ends[step] - ends[before] - known[step]), 3) for before, step in spans]
