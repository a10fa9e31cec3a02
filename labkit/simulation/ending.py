"""HOST: how a simulation ends before its time: SIGTERM and SIGHUP unwind it, so that its folder goes."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextlib.contextmanager
def unwound() -> Iterator[None]:
    """Within it both signals are as Ctrl-C; behind it the process ends by the one that came, as usual.

    A signal that somebody ignores (`nohup`) or hears already is left alone.
    """
    is_main = threading.current_thread() is threading.main_thread()
    ours = [one for one in SIGNALS if is_main and signal.getsignal(one) is signal.SIG_DFL]
    came: list[int] = []

    def end(number: int, _frame: object) -> None:
        for one in ours:
            signal.signal(one, signal.SIG_IGN)  # a second must not cut the tidying off
        came.append(number)
        raise KeyboardInterrupt

    try:
        for one in ours:
            signal.signal(one, end)
        yield
    finally:
        for one in ours:
            signal.signal(one, signal.SIG_DFL)
        if came:
            os.kill(os.getpid(), came[0])
