"""HOST: one command at a time on a lab. The kernel drops a lock with its holder: none is ever stale."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from labkit.errors import LabError


@contextlib.contextmanager
def hold(state_dir: Path, name: str, verb: str) -> Iterator[None]:
    """Keep every other `hold` of this lab out; LabError at once, naming the holder, when there is one.

    The file lies beside the lab's folder, not in it: `lab down` removes the folder while it holds the lock.
    """
    state_dir.mkdir(parents=True, exist_ok=True)
    path = state_dir / f".{name}.lock"
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _taken(path, name) from None
        file.truncate(0)
        file.write(f"{verb} {os.getpid()} {time.strftime('%H:%M:%S')}\n")
        file.flush()
        yield


@contextlib.contextmanager
def briefly(path: Path) -> Iterator[None]:
    """Wait for the lock of `path`, for a change that takes milliseconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _taken(path: Path, name: str) -> LabError:
    try:
        verb, pid, since = path.read_text().split()
    except (OSError, ValueError):
        verb, pid, since = "?", "?", "?"
    return LabError(
        f"`lab {verb}` (process {pid}, since {since}) is at work on the lab '{name}'",
        "wait until it is over, or end it with Ctrl-C in its terminal; `lab status` works meanwhile",
    )
