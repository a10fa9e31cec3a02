"""HOST: the processes of a playbook, known by a mark in their environment, so that none outlives its command.

Ansible's workers and Mitogen's helpers leave the process group of ansible-playbook: ending that group, as the
runner does, leaves them behind; and a command that is killed takes none of them along.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

PROC = Path("/proc")
MARK = "LAB_PLAYBOOK_OF"
ROUNDS, PAUSE_SECONDS = 20, 0.1  # they may fork while they are being counted


def mark(lab_dir: Path) -> dict[str, str]:
    """The environment that a playbook of this lab, and all it starts on this host, carries."""
    return {MARK: str(lab_dir)}


def end(lab_dir: Path) -> int:
    """End every process of a playbook of this lab; returns how many there were. For who holds the lab."""
    ended: set[int] = set()
    for _ in range(ROUNDS):
        found = [pid for pid in _marked(lab_dir) if pid != os.getpid()]
        if not found:
            break
        for pid in found:
            _kill(pid)
        ended.update(found)
        time.sleep(PAUSE_SECONDS)
    return len(ended)


def count(lab_dir: Path) -> int:
    """How many there are, for who only looks."""
    return len(_marked(lab_dir))


def _marked(lab_dir: Path) -> list[int]:
    wanted = f"{MARK}={lab_dir}".encode()
    return [int(folder.name) for folder in PROC.glob("[0-9]*") if _is_marked(folder, wanted)]


def _is_marked(folder: Path, wanted: bytes) -> bool:
    """An ssh is let be: one that waits for the next playbook stays on purpose, others end with theirs.

    So is what runs in a container: the same path names another folder there.
    """
    try:
        of_ours = wanted in (folder / "environ").read_bytes().split(b"\0")
        is_here = os.readlink(folder / "ns" / "mnt") == os.readlink(PROC / "self" / "ns" / "mnt")
        return of_ours and is_here and (folder / "comm").read_text().strip() != "ssh"
    except OSError:  # it ended meanwhile, or is somebody else's
        return False


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
