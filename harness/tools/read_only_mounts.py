"""GUEST: a mount namespace in which every file system is read-only, for the commands of FINAL_REPORT.

The second wall behind shell_rules.py: what that lets through by mistake can still write nowhere. Only root
can make one. Not covered: what another process does for the command, and root's writes to a raw disk.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

CLONE_NEWNS = 0x20000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP, CAP_SYS_ADMIN = 38, 24, 21
# A remount replaces all of a mount's flags: what stands here is kept as it was.
KEPT = {"nosuid": 2, "nodev": 4, "noexec": 8, "noatime": 1024, "nodiratime": 2048, "relatime": 1 << 21}
# Nobody's files lie there, and a command gets its cgroup and its oom_score_adj through them.
LEFT = {"proc", "cgroup", "cgroup2", "autofs"}
Started = TypeVar("Started")


class NotReadOnly(Exception):
    """The kernel does not let us; nothing was started."""


def start_in_read_only(start: Callable[[], Started], places: list[Path]) -> Started:
    """What `start` returns, called where the file systems of `places` cannot be written.

    A namespace belongs to a thread, and what a thread starts inherits it: ours is left as it is. The program
    gets no new rights either, so that sudo cannot undo it. Raises NotReadOnly, or what `start` raises.
    """
    box: list[Started | BaseException] = []

    def inside() -> None:
        try:
            _enter(places)
            box.append(start())
        except BaseException as error:
            box.append(error)

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    if isinstance(box[0], BaseException):
        raise box[0]
    return box[0]


def _enter(places: list[Path]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS):
        raise NotReadOnly(f"no mount namespace: {_why()}")
    if libc.mount(None, b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None):
        raise NotReadOnly(f"no private mounts: {_why()}")
    for place, flags in _mounts():
        libc.mount(None, place, None, ctypes.c_ulong(MS_REMOUNT | MS_BIND | MS_RDONLY | flags), None)
    for place in places:
        if place.exists() and not os.statvfs(place).f_flag & os.ST_RDONLY:
            raise NotReadOnly(f"{place} stayed writable")
    libc.prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN, 0, 0, 0)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _mounts() -> list[tuple[bytes, int]]:
    """Mount point and kept flags of each mount."""
    found = []
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        words = line.split(b" ")
        kind = words[words.index(b"-") + 1].decode()
        options = words[5].decode().split(",")
        if kind not in LEFT:
            place = words[4].decode("unicode_escape").encode("latin-1")
            found.append((place, sum(KEPT.get(option, 0) for option in options)))
    return found


def _why() -> str:
    return os.strerror(ctypes.get_errno())
