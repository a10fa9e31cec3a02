"""HOST: `lab gc`: what no lab of this host needs any more, and folders of killed simulations.

Owns what is never freed: a lab's set and disks, its keys, an uncollected run and its gateway's folder,
anything in runs/.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from labkit import dead_disks, disks, harness_archive, lock, runs, state
from labkit.errors import LabError
from labkit.gateway import process
from labkit.gateway.files import read_lines
from labkit.gateway.views import EVENTS
from labkit.limits import RESERVED_NAMES
from labkit.simulation import sandbox

STALE_SECONDS = 3600  # a half-made archive that young may be under way


@dataclass(frozen=True)
class Garbage:
    """One thing that can go. bytes: what it takes on the disk. why: a clause."""

    kind: str
    path: Path
    bytes: int
    why: str


def find(state_dir: Path, runs_root: Path, simulated: list[Path] | None = None) -> list[Garbage]:
    """Everything that can go, below the folder that all labs of this host share. Nothing is changed.

    runs_root: where collected runs are looked for. simulated: where simulations have their folders.
    """
    labs = _labs(state_dir)
    found = [*_images(state_dir / "images", labs), *_archives(state_dir / "harness")]
    for lab_dir in labs:
        found += [*_leftovers(lab_dir), *_gateways(lab_dir, runs_root)]
    why = "of a simulation that was killed"
    found += [("leftover", path, why) for path in sandbox.left_behind(simulated or [])]
    return [_sized(*thing) for thing in found]


def free(state_dir: Path, runs_root: Path, simulated: list[Path] | None = None) -> list[Garbage]:
    """Remove what `find` finds; returns it. LabError while any lab of this host is at work."""
    with _nobody_at_work(state_dir):
        found = find(state_dir, runs_root, simulated)
        for garbage in found:
            if garbage.path.is_dir():
                shutil.rmtree(garbage.path)
            else:
                garbage.path.unlink()
    return found


def spoken(size: float) -> str:
    """Bytes for a person."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


@contextlib.contextmanager
def _nobody_at_work(state_dir: Path) -> Iterator[None]:
    """Every lab that was ever at work here has its lock beside its folder."""
    with contextlib.ExitStack() as held:
        for path in sorted(state_dir.glob(".*.lock")):
            held.enter_context(lock.hold(state_dir, path.name[1:].removesuffix(".lock"), "gc"))
        yield


def _labs(state_dir: Path) -> list[Path]:
    folders = sorted(path for path in state_dir.glob("*") if path.is_dir() and not path.is_symlink())
    return [path for path in folders if path.name not in RESERVED_NAMES and not path.name.startswith(".")]


def _images(folder: Path, labs: list[Path]) -> Iterator[tuple[str, Path, str]]:
    if folder.is_symlink():  # shared with labs elsewhere, of which nothing is known here
        return
    folders = [path for path in folder.glob("*") if path.is_dir() and not path.is_symlink()]
    whole = [path for path in folders if (path / "SHA256SUMS").is_file()]
    newest = max(whole, key=lambda path: path.stat().st_mtime, default=None)
    needed = _needed_by(labs)
    for path in sorted(folders):
        if path.name.endswith(".partial"):
            yield "leftover", path, "an image whose making was interrupted"
        elif path in whole and path != newest and needed is not None and path not in needed:
            yield "image", path, "no guest stands on it or was built from it, and a newer one is there"


def _needed_by(labs: list[Path]) -> set[Path] | None:
    """The image folders that some lab stands on or was built from; None when that can't be told."""
    needed = set()
    try:
        for lab_dir in labs:
            built_from = state.read(lab_dir).get("image")
            needed |= {Path(built_from)} if built_from else set()
            for path in (
                lab_dir / part / name for part in ("disks", "set") for name in disks.WRITABLE.values()
            ):
                needed |= {link.parent for link in dead_disks.chain(path)} if path.is_file() else set()
    except LabError:
        return None
    return needed


def _archives(folder: Path) -> Iterator[tuple[str, Path, str]]:
    current = harness_archive.current_names()
    for path in sorted(folder.glob("*.tar.gz")):
        if path.name not in current:
            yield "harness archive", path, "of an older harness"
    for path in sorted(folder.glob(".building-*")):
        if time.time() - path.stat().st_mtime > STALE_SECONDS:
            yield "leftover", path, "an archive whose making was interrupted"


def _leftovers(lab_dir: Path) -> Iterator[tuple[str, Path, str]]:
    why = "of a command that was interrupted"
    # Without a set beside them these two may be the only whole ones.
    spare = ("set.new", "set.old") if (lab_dir / "set" / "manifest.json").is_file() else ()
    for name in (*spare, dead_disks.FOLDER):
        if (lab_dir / name).is_dir() and not (lab_dir / name).is_symlink():
            yield "leftover", lab_dir / name, why
    for pattern in ("*.partial", "disks/*.partial", "disks/*.new", "disks/*.old"):
        for path in sorted(lab_dir.glob(pattern)):
            yield "leftover", path, why


def _gateways(lab_dir: Path, runs_root: Path) -> Iterator[tuple[str, Path, str]]:
    try:
        in_the_guest = state.read(lab_dir).get("run")
    except LabError:
        return
    for path in sorted((lab_dir / "gateway").glob("*")):
        if path.name == in_the_guest or not path.is_dir() or path.is_symlink() or process.alive(path):
            continue
        if runs.is_complete(runs_root / path.name):
            yield "gateway folder", path, f"its copy is in {runs_root / path.name}"
        elif (path / "not-started.json").is_file() and next(read_lines(path / EVENTS), None) is None:
            yield "gateway folder", path, "of a run that never started"


def _sized(kind: str, path: Path, why: str) -> Garbage:
    size = path.lstat().st_blocks * 512
    for folder, folders, files in os.walk(path):
        size += sum(os.lstat(os.path.join(folder, name)).st_blocks * 512 for name in folders + files)
    return Garbage(kind, path, size, why)
