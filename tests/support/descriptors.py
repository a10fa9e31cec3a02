"""TESTS: descriptors of this process: waiting for one, and which files are open."""

import contextlib
import os
import select
from pathlib import Path


def readable(descriptor: int, seconds: float) -> bool:
    """Whether something can be read (or the other end was closed) within so many seconds.

    By poll: select() knows no descriptor above 1023, and a long run may have more.
    """
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(max(0.0, seconds) * 1000))


def opened_below(folder: Path) -> list[str]:
    """The files in a folder that this process has open, once for each descriptor."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that listed them
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return sorted(path for path in found if path.startswith(f"{folder}/"))
