"""HOST: where a simulated session's files are, and how they are kept in the shape of a collected run."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from labkit.errors import USAGE, LabError
from labkit.simulation.result import Result

MEMORY = Path("/dev/shm")  # a tmpfs: fsync costs nothing there
LEAST_FREE = 1 << 30  # bytes; a container may have a very small one
PREFIX = "lab-simulate-"
_NAMED = re.compile(PREFIX + r"(\d{1,9})-\w+")


@contextlib.contextmanager
def place(folder: Path | None, resume: bool) -> Iterator[Path]:
    """The sandbox: the folder asked for, else one in memory or the temporary folder that goes at the end."""
    if folder is not None:
        yield Path(folder).absolute() if resume else _fresh(Path(folder).absolute())
        return
    with made() as own:
        yield own


@contextlib.contextmanager
def made() -> Iterator[Path]:
    """A sandbox in a folder that goes at the end. Its name has this process, by which `gc` finds it."""
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-", dir=temporary()) as folder:
        yield Path(folder) / "sandbox"


def places() -> list[Path]:
    """Where such folders are made."""
    return [MEMORY, Path(tempfile.gettempdir())]


def left_behind(places: list[Path]) -> Iterator[Path]:
    """Folders of simulations whose process is gone: it was killed, or the machine went down."""
    for path in sorted({found for place in places for found in place.glob(f"{PREFIX}*")}):
        named = _NAMED.fullmatch(path.name)
        if named and path.is_dir() and not path.is_symlink() and not _runs(int(named[1])):
            yield path


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def temporary() -> str | None:
    """Memory where there is room in it; None: the usual temporary folder."""
    usable = MEMORY.is_dir() and os.access(MEMORY, os.W_OK)
    return str(MEMORY) if usable and shutil.disk_usage(MEMORY).free > LEAST_FREE else None


def _fresh(folder: Path) -> Path:
    if folder.is_dir() and any(folder.iterdir()):
        raise LabError(f"{folder} is not empty", "name a new folder: a simulation overwrites nothing", USAGE)
    return folder


def keep(result: Result, target: Path) -> None:
    """Move what a session left to `target`, in the shape of a collected run, so that `lab query` reads it.

    Whole or not at all: where that is cut off, or the disk takes only a part, `target` is gone again.
    """
    sandbox = result.folder
    if sandbox is None:
        raise ValueError("the session had no folder of its own")
    target.mkdir(parents=True, exist_ok=True)
    try:
        _move(sandbox, target)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


def _move(sandbox: Path, target: Path) -> None:
    moves = {
        "telemetry/sealed/run.db": "run.db",
        "mirror/run.db": "mirror.db",
        "telemetry/summary.json": "summary.json",
        "telemetry/outputs": "outputs",
        "workspace": "workspace",
    }
    for source, name in moves.items():
        if (sandbox / source).exists():
            shutil.move(sandbox / source, target / name)
