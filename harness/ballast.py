"""GUEST: space and inodes kept from the Worker, and freed so that a full disk can take the report."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

NAME = ".lab-ballast"  # in the sandbox's tmp: the workspace's disk, and a folder where only its owner removes
FILES, BYTES = 16, 4_000_000  # at most that many bytes a file; each is an inode too
SHARE = 20  # of what is free at the start, one part


def place(folder: Path, most: int = BYTES) -> bool:
    """Lay it down below `folder`, `most` bytes a file. False: there is no room for it, or no way to."""
    try:
        size = min(most, shutil.disk_usage(folder).free // SHARE // FILES)
        if not size:
            return False
        (folder / NAME).mkdir(mode=0o700, exist_ok=True)
        for number in range(FILES):
            _fill(folder / NAME / str(number), size)
    except OSError:
        free(folder)
        return False
    return True


def free(folder: Path) -> bool:
    """True: there was some, and it is gone."""
    ballast = folder / NAME
    if ballast.is_symlink() or not ballast.is_dir():
        return False
    for entry in list(os.scandir(ballast)):
        with suppress(OSError):
            os.unlink(entry.path)
    with suppress(OSError):
        ballast.rmdir()
    return True


def _fill(path: Path, size: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        os.posix_fallocate(handle, 0, size)
    finally:
        os.close(handle)
