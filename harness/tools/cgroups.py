"""GUEST: one cgroup per command, below the service's own (Delegate=yes). Without cgroup v2 there is none.

<service>/harness           the orchestrator: a group whose children have limits may hold no process itself
<service>/steps             all commands together, background jobs included: the same memory, four times the
                            processes
<service>/steps/step-N      one command: killed as a whole, also when it runs out of memory
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
LEAF, ALL = "harness", "steps"
ALL_PROCESSES = 4  # times a command's


@dataclass(frozen=True)
class Limits:
    """What a command may use: bytes of memory, processes (threads count)."""

    memory: int
    processes: int

    def __str__(self) -> str:
        return f"{self.memory / 1e9:.1f} GB of memory, {self.processes} processes"


def own() -> Path | None:
    """The delegated cgroup of this process, if there is one we can make children in."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    paths = [line[3:] for line in lines if line.startswith("0::")]
    if not paths or paths[0] == "/" or not (ROOT / "cgroup.controllers").exists():
        return None  # not ours to divide, or not v2
    return ROOT / paths[0].lstrip("/").removesuffix(f"/{LEAF}")


def create(name: str, limits: Limits) -> Path | None:
    """A group with these limits (see is_limited), or None."""
    parent = own()
    if parent is None:
        return None
    try:
        if not (parent / ALL).exists():
            _divide(parent, limits)
        group = parent / ALL / name
        group.mkdir(exist_ok=True)
    except OSError:
        return None
    _limit(group, limits)
    return group


def is_limited(group: Path | None) -> bool:
    """False where the kernel does not hand the controllers on: then a group is for killing only."""
    return group is not None and (group / "memory.max").exists() and (group / "pids.max").exists()


def _divide(parent: Path, limits: Limits) -> None:
    (parent / LEAF).mkdir(exist_ok=True)
    _write(parent / LEAF / "cgroup.procs", str(os.getpid()))
    _hand_on(parent)
    (parent / ALL).mkdir()
    _limit(parent / ALL, Limits(limits.memory, ALL_PROCESSES * limits.processes))
    _hand_on(parent / ALL)


def _hand_on(group: Path) -> None:
    with contextlib.suppress(OSError):
        _write(group / "cgroup.subtree_control", "+memory +pids")


def _limit(group: Path, limits: Limits) -> None:
    values = {"memory.max": limits.memory, "pids.max": limits.processes}
    values["memory.oom.group"] = 1  # half a command is worth nothing
    for file, value in values.items():
        with contextlib.suppress(OSError):
            _write(group / file, str(value))


def _write(file: Path, value: str) -> None:
    file.write_text(value, encoding="ascii")


def move(group: Path, pid: int) -> None:
    with contextlib.suppress(OSError):
        _write(group / "cgroup.procs", str(pid))


def kill(group: Path) -> None:
    """Every process in it, whatever session it made for itself. Needs Linux 5.14; silent before."""
    with contextlib.suppress(OSError):
        _write(group / "cgroup.kill", "1")


def met(group: Path) -> list[str]:
    """The limits that a group ran into, in words."""
    found = []
    if _count(group / "memory.events", "oom_kill"):
        found.append("it ran out of the memory it may use and was killed")
    if _count(group / "pids.events", "max"):
        found.append("it could not start all the processes it wanted")
    return found


def _count(file: Path, key: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(dict(line.split() for line in file.read_text(encoding="ascii").splitlines()).get(key, 0))
    return 0


def alive(name: str) -> bool | None:
    """Whether a command left something running; None where there are no groups to tell by."""
    parent = own()
    if parent is None or not (parent / ALL).exists():
        return None
    with contextlib.suppress(OSError):
        return bool((parent / ALL / name / "cgroup.procs").read_text(encoding="ascii").strip())
    return False


def tidy() -> None:
    """Remove the groups of commands that left nothing behind."""
    for group in _steps():
        with contextlib.suppress(OSError):
            group.rmdir()


def kill_all() -> None:
    for group in _steps():
        kill(group)


def _steps() -> list[Path]:
    parent = own()
    return sorted((parent / ALL).glob("step-*")) if parent else []
