"""HOST: a call that can't be given a time-out is ended from beside, when its time is over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def after(seconds: float, end: Callable[[], object]) -> Iterator[threading.Event]:
    """Calls `end` when the block takes longer; the event says that it did. Never after the block is over."""
    fired = threading.Event()

    def act() -> None:
        fired.set()
        end()

    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()
    try:
        yield fired
    finally:
        timer.cancel()
        timer.join()
