"""HOST: the one way to open a file of a collected run: only a regular file is. A pipe would never end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

WHY = "it is no regular file"


def opened(path: Path) -> BinaryIO:
    """The file for reading, in bytes. OSError where there is none, or it is a pipe, a device or a socket."""
    # NONBLOCK: without it the opening of a pipe that nobody writes to waits for ever.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, WHY, str(path))
    return os.fdopen(descriptor, "rb")


def read(path: Path, most: int = -1) -> bytes:
    """What is in it, or the first `most` bytes of that. OSError as `opened`."""
    with opened(path) as file:
        return file.read(most)


def is_odd(path: Path) -> bool:
    """There is something of that name which is neither a regular file nor a folder, links followed."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def odd_ones(folder: Path) -> list[str]:
    """Names below a folder of what is neither a regular file nor a folder; links to such are among them."""
    found = []
    for where, _, files in os.walk(folder):
        found += [Path(where) / name for name in sorted(files) if is_odd(Path(where) / name)]
    return [path.relative_to(folder).as_posix() for path in found]
