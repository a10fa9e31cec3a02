"""GUEST: one cgroup per command, below the service's own (Delegate=yes). Without cgroup v2 there is none."""

from __future__ import annotations

import contextlib
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


def own() -> Path | None:
    """The delegated cgroup of this process, if there is one we can make children in."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    paths = [line[3:] for line in lines if line.startswith("0::")]
    if not paths or paths[0] == "/" or not (ROOT / "cgroup.controllers").exists():
        return None  # not ours to divide, or not v2
    return ROOT / paths[0].lstrip("/")


def create(name: str) -> Path | None:
    parent = own()
    if parent is None:
        return None
    try:
        (parent / name).mkdir(exist_ok=True)
    except OSError:
        return None
    return parent / name


def move(group: Path, pid: int) -> None:
    with contextlib.suppress(OSError):
        (group / "cgroup.procs").write_text(str(pid))


def kill(group: Path) -> None:
    """Every process in it, whatever session it made for itself. Needs Linux 5.14; silent before."""
    with contextlib.suppress(OSError):
        (group / "cgroup.kill").write_text("1")


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
    return sorted(parent.glob("step-*")) if parent else []
