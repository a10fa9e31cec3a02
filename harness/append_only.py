"""GUEST: the file system's own append-only attribute (chattr +a), set through ioctl: no process a file.

A file can then be read and appended to, and not be overwritten, cut, removed, renamed, linked or chmodded, by
root neither. In a folder entries can be made, and none removed or renamed, nor the folder itself. Root can
take the attribute off (`sudo chattr -a`) and can write to the raw disk: these two are not covered.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import struct
from pathlib import Path

# linux/fs.h, the same on x86-64 and arm64. The kernel reads an int whatever the numbers say of a long.
GET_FLAGS, SET_FLAGS, APPEND = 0x80086601, 0x40086602, 0x20


class Unsupported(Exception):
    """This file system has no such attribute, or we may not set it."""


def protect(handle: int) -> None:
    """Set the attribute on an open file or folder. Raises Unsupported."""
    try:
        flags = fcntl.ioctl(handle, GET_FLAGS, struct.pack("@l", 0))
        (now,) = struct.unpack("@i", flags[:4])
        if not now & APPEND:
            fcntl.ioctl(handle, SET_FLAGS, struct.pack("@l", now | APPEND))
    except OSError as error:
        raise Unsupported(error.strerror) from error


def protect_folder(path: Path) -> None:
    """The folder itself, not what is in it. Raises Unsupported or OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        protect(handle)
    finally:
        os.close(handle)


def is_being_written(handle: int) -> bool:
    """Whether any process has the file open for writing. handle: opened read-only.

    A read lease is granted only while nobody has. That it is broken is told by SIGIO, which would kill us, or
    as here by SIGURG, which does nothing.
    """
    try:
        fcntl.fcntl(handle, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    with contextlib.suppress(OSError):
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False
