"""HOST: a simulation's time: it stands still while code runs, and jumps over every wait."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import selectors
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

EPOCH = 1_767_268_800.0  # 2026-01-01 12:00 UTC: the same record whenever a simulation is run
TICK = 5.0  # virtual seconds between two looks at the stop flag during a model call


class VirtualTime:
    """Seconds since the simulation began, and the wall clock's time, which may jump on its own."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.wall_offset = 0.0
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def now(self) -> float:
        return self.seconds

    def stamp(self) -> str:
        """UTC in SQLite's form."""
        moment = time.gmtime(EPOCH + self.seconds + self.wall_offset)
        return time.strftime("%Y-%m-%d %H:%M:%S", moment)

    def at(self, seconds: float, do: Callable[[], None]) -> None:
        """Do something when that moment is passed."""
        heapq.heappush(self._agenda, (seconds, next(self._order), do))

    def wait(self, seconds: float, stop: threading.Event) -> bool:
        """Jump ahead; to the moment at which `stop` is set if that comes first. True: it is set."""
        self.advance(seconds, stop)
        return stop.is_set()

    def advance(self, seconds: float, stop: threading.Event | None = None) -> None:
        ends = self.seconds + max(0.0, seconds)
        while not (stop and stop.is_set()):
            if not self._agenda or self._agenda[0][0] > ends:
                self.seconds = ends
                return
            moment, _, do = heapq.heappop(self._agenda)
            self.seconds = max(self.seconds, moment)
            do()


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time-outs pass in virtual time. Nothing outside the process can wake it."""

    def __init__(self, virtual: VirtualTime) -> None:
        self._virtual = virtual
        super().__init__(_Selector(virtual))
        self.set_exception_handler(_told)

    def time(self) -> float:
        return self._virtual.now()

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future:
        """At once and here: how long a thread takes would change from run to run."""
        done = self.create_future()
        done.set_result(func(*args))
        return done


def _told(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Ctrl-C ends the session by itself: asyncio need not tell of each task that it went through."""
    if not isinstance(context.get("exception"), KeyboardInterrupt):
        loop.default_exception_handler(context)


class _Selector(selectors.BaseSelector):
    """Where a loop would sleep until a time-out, the virtual clock jumps to it."""

    def __init__(self, virtual: VirtualTime) -> None:
        self._virtual, self._real = virtual, selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None:
            raise RuntimeError("the simulated world waits for something that will never happen")
        self._virtual.advance(timeout)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()
