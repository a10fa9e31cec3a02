"""HOST: what a person does at the keyboard while a view is open: single keys, and Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

from rich.console import Console


@contextlib.contextmanager
def interrupts() -> Iterator[list[int]]:
    """Ctrl-C as a list that grows, so that it cannot tear a screen update apart."""
    seen: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return
    before = signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def keys(console: Console) -> Iterator[Callable[[float], str]]:
    """Gives pressed(seconds): waits that long for a key and returns it, or an empty text."""
    if not (console.is_terminal and sys.stdin and sys.stdin.isatty()):
        yield _no_key
    elif os.name == "nt":
        yield _windows_key
    else:
        with _posix_keys() as pressed:
            yield pressed


def _no_key(seconds: float) -> str:
    time.sleep(seconds)
    return ""


def _windows_key(seconds: float) -> str:  # pragma: no cover
    import msvcrt

    time.sleep(seconds)
    return msvcrt.getwch() if msvcrt.kbhit() else ""


@contextlib.contextmanager
def _posix_keys() -> Iterator[Callable[[float], str]]:
    import select
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def pressed(seconds: float) -> str:
        if not select.select([descriptor], [], [], seconds)[0]:
            return ""
        data = os.read(descriptor, 1)
        if not data:  # the terminal is gone: do not spin on its end of file
            time.sleep(seconds)
        return data.decode("ascii", "replace")

    try:
        tty.setcbreak(descriptor)
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
