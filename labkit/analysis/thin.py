"""HOST: shortens long answers for a screen. Owns how minutes are put into buckets and lines are picked."""

from __future__ import annotations

import math

from labkit.analysis.load import Result

MAX_LINES = 16


def thinned(name: str, result: Result) -> Result:
    """The answer to a named question in at most about MAX_LINES rows."""
    if name == "activity_over_time":
        return _bucketed(result)
    return _sampled(result) if len(result.rows) > MAX_LINES else result


def bucket_minutes(first: float, last: float, lines: int = MAX_LINES) -> int:
    """A bucket width in whole minutes that gives at most `lines` buckets: 1, 3, 5, 10, 15, 30, 60 ..."""
    need = (last - first + 1) / lines
    return next((width for width in (1, 3, 5, 10, 15, 30) if width >= need), 60 * math.ceil(need / 60))


def _bucketed(result: Result) -> Result:
    """Rows of (minute, phase, events), the minutes joined into wider buckets."""
    minutes = [row[0] for row in result.rows if row[0] is not None]
    if not minutes:
        return result
    width = bucket_minutes(min(minutes), max(minutes))
    sums: dict[tuple, int] = {}
    for minute, phase, events in result.rows:
        start = None if minute is None else minute // width * width
        sums[start, phase] = sums.get((start, phase), 0) + events
    return Result(result.columns, [(start, phase, events) for (start, phase), events in sums.items()])


def _sampled(result: Result) -> Result:
    """Evenly spaced rows, the last one always among them."""
    last = len(result.rows) - 1
    picked = sorted({round(i * last / (MAX_LINES - 1)) for i in range(MAX_LINES)})
    return Result(result.columns, [result.rows[i] for i in picked])
