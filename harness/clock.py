"""GUEST: owns the run's time: active seconds, the end, the reserve for the report, the wall limit."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

WALL_LIMIT_FACTOR = 2.0  # outages are not charged; this bounds them
FINISH_WINDOW_SECONDS = 60.0  # least time for the report after a person asked to finish


def wait(seconds: float, stop: threading.Event) -> bool:
    """Sleep, or less when `stop` is set. True: was asked to stop."""
    return stop.wait(max(0.0, seconds))


class Clock:
    """Counts active seconds on a monotonic clock; the wall clock may jump without effect.

    Until `start` it stands at zero.
    """

    def __init__(
        self, length_seconds: float, reserve_fraction: float, now: Callable[[], float] = time.monotonic,
        wait: Callable[[float, threading.Event], bool] = wait,
    ) -> None:  # fmt: skip
        self._now, self._wait = now, wait
        self._started: float | None = None
        self._used, self._wall_used = 0.0, 0.0
        self._uncharged = 0.0
        self.length, self._reserve_fraction = length_seconds, reserve_fraction
        self.end = length_seconds
        self._wall_end = math.inf  # of a run that was asked to finish
        self.reserve = length_seconds * reserve_fraction

    def start(self) -> None:
        """The loop begins: what start-up took is not charged."""
        self._started = self._now()
        self._uncharged = 0.0

    def carry_on(self, used: float, wall_used: float, end: float) -> None:
        """Add what an earlier process of the same run had counted, and take over its end."""
        self._used, self._wall_used = used, wall_used
        if 0 < end < self.length:
            self.end, self._wall_end = end, wall_used + end - used
            self.reserve = min(self.reserve, FINISH_WINDOW_SECONDS / 4)

    def now(self) -> float:
        """Monotonic seconds of no meaning but their difference."""
        return self._now()

    def elapsed(self) -> float:
        return self._used + self._since_start() - self._uncharged

    def wall_elapsed(self) -> float:
        return self._wall_used + self._since_start()

    def _since_start(self) -> float:
        return 0.0 if self._started is None else self._now() - self._started

    def remaining(self) -> float:
        return self.end - self.elapsed()

    def wall_remaining(self) -> float:
        return min(self.length * WALL_LIMIT_FACTOR, self._wall_end) - self.wall_elapsed()

    def fraction(self) -> float:
        return self.elapsed() / self.length

    def in_reserve(self) -> bool:
        return self.remaining() <= self.reserve

    def until_reserve(self) -> float:
        return self.remaining() - self.reserve

    def finish_soon(self) -> None:
        """At most max(60 s, reserve) from now, outages included; a quarter for the ladder's lower rungs."""
        window = min(self.remaining(), max(FINISH_WINDOW_SECONDS, self.reserve))
        self.end, self._wall_end = self.elapsed() + window, self.wall_elapsed() + window
        self.reserve = min(self.reserve, window / 4)

    def extend(self, seconds: float) -> None:
        """A longer run, and a longer reserve in it. One that was asked to finish keeps its end."""
        is_finishing = self.end < self.length
        self.length += seconds
        if not is_finishing:
            self.end, self.reserve = self.length, self.length * self._reserve_fraction

    def for_work(self) -> float:
        """Seconds that one piece of work may take; it leaves the report's reserve. Never below 1."""
        left = self.until_reserve()
        return max(1.0, min(left if left > 0 else self.remaining(), self.wall_remaining()))

    def give_back(self, seconds: float) -> None:
        """Time just passed that is not the run's (a provider's outage); the wall limit still counts it."""
        self._uncharged += seconds

    @contextmanager
    def uncharged(self) -> Iterator[None]:
        """The same for the time inside."""
        began = self._now()
        try:
            yield
        finally:
            self.give_back(self._now() - began)

    def wait(self, seconds: float, stop: threading.Event) -> bool:
        """Sleep, or less when `stop` is set. True: was asked to stop."""
        return self._wait(seconds, stop)


def spoken(seconds: float) -> str:
    """'1h 44m', or '2m 05s' below ten minutes."""
    whole = max(0, int(seconds))
    if whole < 600:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
