"""HOST: where the time of a recorded run went that no script names: reviews, pauses, backups, the harness."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime

from harness.model import FIRST_BACKOFF
from harness.replies import LONGEST_ASKED, ODD_REPLIES, UNANSWERED

FAILED = "step failed: "  # how such an event begins; harness/failed_steps.py
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0  # seconds, doubled with each failed step in a row, as there
TIMED = ("execute_shell", "browser_fetch")  # tools whose time is played; the others run, and take none
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


def followed(requests: list[dict]) -> dict[int, dict]:
    """The next attempt of the same call, by the id of the one before; none where a call was given up."""
    last: dict[str, dict] = {}
    found = {}
    for row in requests:
        before = last.get(row["purpose"])
        if before and (row["attempt"] or 1) == (before["attempt"] or 1) + 1:
            found[before["id"]] = row
        last[row["purpose"]] = row
    return found


def waited(row: dict, after: dict | None) -> float:
    """Seconds between two attempts by the wall clock, where they are more than the harness's own backoff.

    Of a call that was given up: the longest that a server may ask for, which is too long for any call.
    """
    if after is None:
        return LONGEST_ASKED
    gap = seconds(after["timestamp"]) - seconds(row["timestamp"]) - (after["latency_seconds"] or 0.0)
    return max(0.0, round(gap)) if gap > _backoff(row) + 1 else 0.0


def seconds(stamp: str | None) -> float:
    """Of a time stamp, since the epoch; 0 where it is none."""
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except (TypeError, ValueError):
        return 0.0


def _backoff(row: dict) -> float:
    return FIRST_BACKOFF * 2 ** min((row["attempt"] or 1) - 1, 8)


def charged(requests: list[dict]) -> Iterator[tuple[dict, float]]:
    """Each attempt and its seconds with the pause after an odd reply; an outage is not charged."""
    later = followed(requests)
    for row in requests:
        is_odd = row["status"] in ODD_REPLIES and row["id"] in later
        took = 0.0 if row["status"] in UNANSWERED else row["latency_seconds"] or 0.0
        yield row, took + (_backoff(row) if is_odd else 0.0)


def reviewing(requests: list[dict]) -> dict[int, float]:
    """Charged seconds that the Inspector took, by step."""
    took: dict[int, float] = defaultdict(float)
    for row, spent in charged(requests):
        if row["purpose"] == "inspector":
            took[row["step_number"]] += spent
    return took


def between(rows: list[dict], requests: list[dict]) -> dict[int, float]:
    """Seconds behind each step that neither a model nor a timed tool took: backups, the harness itself."""
    if not requests:
        return {}
    known = _pauses(rows)
    for request, spent in charged(requests):
        if request["purpose"] != "inspector":  # its time lies within a tool's
            known[request["step_number"]] += spent
    called, ends = 0.0, {0: 0.0}
    for row in rows:
        step, elapsed = row["step_number"] or 0, row["elapsed_seconds"] or 0.0
        if row["event_type"] == "TOOL_CALL":
            called = elapsed
        elif row["event_type"] == "TOOL_RESULT" and row["tool_name"] in TIMED:
            known[step] += elapsed - called
        if row["event_type"] not in AFTER_STEPS:
            ends[step] = elapsed
    steps = sorted(ends)
    spans = zip(steps, steps[1:], strict=False)
    return {before: round(max(0.0, ends[step] - ends[before] - known[step]), 3) for before, step in spans}


def _pauses(rows: list[dict]) -> dict[int, float]:
    """What the harness waits by itself after a failed step, by the step that it then is in."""
    found: dict[int, float] = defaultdict(float)
    failures, last = 0, 0
    for row, after in zip(rows, rows[1:], strict=False):
        if not f"{row['sanitized_output'] or ''}{row['guard_reason'] or ''}".startswith(FAILED):
            continue
        step = row["step_number"] or 0
        failures, last = failures + 1 if step == last + 1 else 1, step
        found[after["step_number"] or 0] += min(LONGEST_PAUSE, FIRST_PAUSE * 2**failures)
    return found
