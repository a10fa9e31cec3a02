"""HOST: `lab restore`: one file or folder out of a backup generation, to a new place on this host.

Generations are in the guest; the last one is in the collected run too. Nothing is ever overwritten.
"""

from __future__ import annotations

import contextlib
import datetime
import difflib
import itertools
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from labkit import dead_disks, disk_archive, untar
from labkit.analysis.text import harmless
from labkit.caller import give_to_caller
from labkit.config import Lab
from labkit.dead_disks import BACKUPS, Volumes
from labkit.errors import EVIDENCE, USAGE, LabError
from labkit.ext4 import ROOT_INODE, Unreadable
from labkit.guest import Hypervisor
from labkit.ssh import Shell

_GENERATION = re.compile(r"gen-(\d{1,9})")
MAX_NAMES = 20_000  # looked through for the nearest one
INSIDE = "backup"  # the name under which a generation travels


@dataclass(frozen=True)
class Generation:
    """One backup. made: UTC, when it was complete."""

    number: int
    name: str
    made: str


class Guest:
    """The generations of a guest that answers over SSH. backups: their folder there."""

    def __init__(self, shell: Shell, backups: str) -> None:
        self._shell, self._backups = shell, backups

    def generations(self) -> list[Generation]:
        """Oldest first."""
        find = f"find {shlex.quote(self._backups)} -mindepth 1 -maxdepth 1 -type d -printf '%f %C@\\n'"
        _, said = self._shell.run(find)
        pairs = [line.split(" ") for line in said.splitlines() if line.count(" ") == 1]
        return _sorted((name, float(when)) for name, when in pairs if re.fullmatch(r"\d+\.\d+", when))

    @contextlib.contextmanager
    def stream(self, generation: Generation, path: str) -> Iterator[BinaryIO]:
        """`path` of that generation as a tar stream."""
        words = ["tar", "--create", "--file=-", "--hard-dereference", f"--transform=flags=r;s,^,{INSIDE}/,"]
        words += ["-C", f"{self._backups}/{generation.name}", "--", f"./{path}"]
        yield self._shell.stream(shlex.join(words))


class Disks:
    """The generations of a guest that is off, read from its disks."""

    def __init__(self, volumes: Volumes) -> None:
        self._fs, self._problems = volumes.found.get(BACKUPS), volumes.problems
        if self._fs is None:
            raise LabError(f"the guest's backups can't be read: {'; '.join(self._problems)}", "", EVIDENCE)

    def generations(self) -> list[Generation]:
        """Oldest first."""
        fs = self._fs
        try:
            top = [(os.fsdecode(name), fs.inode(number)) for name, number in fs.entries(fs.inode(ROOT_INODE))]
        except Unreadable as error:
            raise LabError(f"the guest's backups can't be read: {error}", "", EVIDENCE) from error
        return _sorted((name, inode.ctime) for name, inode in top if inode.is_folder)

    @contextlib.contextmanager
    def stream(self, generation: Generation, path: str) -> Iterator[BinaryIO]:
        """`path` of that generation as a tar stream. LabError (usage) where it is not there."""
        try:
            found = self._fs.find(f"{generation.name}/{path}")
        except Unreadable as error:
            raise LabError(f"the guest's backups can't be read: {error}", "", EVIDENCE) from error
        if found is None:
            raise _not_there(path, f"generation {generation.number}")
        name, limits = f"{INSIDE}/{path}", untar.Limits()
        with disk_archive.piped(
            lambda file: disk_archive.write_tree(file, self._fs, found, name, limits, self._problems),
            self._problems,
        ) as stream:
            yield stream


def wanted_path(path: str) -> str:
    """The path below the workspace, cleaned; LabError (usage) for one that leaves it."""
    parts = PurePosixPath(path.removeprefix("workspace/")).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise LabError(
            f"{path!r} is no path below the workspace", "for example: lab restore notes/findings.md", USAGE
        )
    return "/".join(parts)


def destination(path: str, to: Path | None) -> Path:
    """Where it goes; LabError (usage) when something is there already, or there is no such folder."""
    target = (to or Path(f"restored-{PurePosixPath(path).name}")).absolute()
    if os.path.lexists(target):
        raise LabError(f"{target} exists and is never overwritten", "name another place with --to", USAGE)
    if not target.parent.is_dir():
        raise LabError(f"there is no folder {target.parent}", "make it, or name another with --to", USAGE)
    return target


def pick(generations: list[Generation], number: int | None) -> Generation:
    """The generation of that number, the newest without one. LabError (usage) names those there are."""
    if not generations:
        raise LabError("there is no backup generation", "the harness makes one every few steps of a run")
    found = {generation.number: generation for generation in generations}
    if number is None:
        return generations[-1]
    if number not in found:
        first, last = generations[0].number, generations[-1].number
        raise LabError(
            f"there is no generation {number}; there are {len(found)}, from {first} to {last}",
            "`lab restore --list` shows them",
            USAGE,
        )
    return found[number]


def from_guest(source: Guest | Disks, number: int | None, path: str, target: Path) -> Generation:
    """Write `path` of a generation to `target`; returns the generation it came from."""
    generation = pick(source.generations(), number)
    with _scratch(target) as scratch:
        with source.stream(generation, path) as stream:
            taken = untar.extract(stream, scratch)
        if taken.stopped:
            raise LabError(f"{path} did not come whole: {taken.stopped}", "try again", EVIDENCE)
        made = scratch / INSIDE / path
        if taken.skipped and not made.exists():
            raise LabError(f"{path} is not restored: {taken.skipped[0]['reason']}", "", USAGE)
        _put(made, target, f"generation {generation.number}", path)
    return generation


def from_run(folder: Path, path: str, target: Path) -> None:
    """Write `path` of the last generation that a collected run brought along to `target`."""
    source = folder / "backup" / path
    inside = [part for part in (source, *source.parents) if part.is_relative_to(folder / "backup")]
    if any(part.is_symlink() for part in inside):
        raise LabError(f"{source} leads through a link", "collected runs have none: it was changed", EVIDENCE)
    with _scratch(target) as scratch:
        copy = scratch / "copy"
        if source.is_dir():
            shutil.copytree(source, copy, symlinks=True)
        elif source.is_file():
            shutil.copy2(source, copy)
        else:
            raise _not_in_run(folder, path)
        _put(copy, target, f"the backup of run {folder.name}", path)


@contextlib.contextmanager
def source(lab: Lab) -> Iterator[Guest | Disks]:
    """The guest's generations: asked over SSH while it runs, read from its disks while it is off."""
    with Hypervisor() as hypervisor:
        word = hypervisor.state(lab.name)
    instead = "`lab restore PATH --run RUN` takes the backup of a collected run"
    if word == "running":
        with Shell(lab.address, lab.keys_dir) as shell:
            yield Guest(shell, f"{lab.guest['lab_sandbox']}/backups")
    elif word == "paused" or not dead_disks.present(lab.disks_dir):
        what = "is paused: its disks can't be read" if word == "paused" else "has no disks"
        raise LabError(f"the guest '{lab.name}' {what}", instead)
    else:
        dead_disks.demand_room(lab.dir)
        with dead_disks.opened(lab.dir, (BACKUPS,)) as volumes:
            yield Disks(volumes)


@contextlib.contextmanager
def _scratch(target: Path) -> Iterator[Path]:
    """A private folder beside the target, on the same disk: what is whole gets its name in one move."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=".lab-restore-", dir=target.parent))
    except OSError as error:
        message = f"nothing can be written in {target.parent}: {error.strerror}"
        raise LabError(message, "name another place with --to", USAGE) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _put(made: Path, target: Path, where: str, path: str) -> None:
    if not os.path.lexists(made):
        raise _not_there(path, where)
    give_to_caller(made)
    made.rename(destination(path, target))


def _not_there(path: str, where: str) -> LabError:
    return LabError(f"{path} is not in {where}", "`lab restore --list` shows the generations", USAGE)


def _not_in_run(folder: Path, path: str) -> LabError:
    """The nearest name is one that ends alike, else one that is spelt alike."""
    backup = folder / "backup"
    if not backup.is_dir():
        return LabError(
            f"run {folder.name} brought no backup along", f"`ls {folder}` shows what it has", USAGE
        )
    found = itertools.islice(backup.rglob("*"), MAX_NAMES)
    names = [one.relative_to(backup).as_posix() for one in found]
    alike = [name for name in names if name.endswith(f"/{path}")]
    near = alike or difflib.get_close_matches(path, names, n=1)
    hint = f"did you mean {harmless(near[0])}? " if near else ""
    return LabError(
        f"{path} is not in the backup of run {folder.name}", f"{hint}`ls -R {backup}` shows what is", USAGE
    )


def _sorted(found: Iterator[tuple[str, float]]) -> list[Generation]:
    made = [
        Generation(int(match[1]), name, _utc(when))
        for name, when in found
        if (match := _GENERATION.fullmatch(name))
    ]
    return sorted(made, key=lambda generation: generation.number)


def _utc(seconds: float) -> str:
    with contextlib.suppress(OverflowError, OSError, ValueError):
        return f"{datetime.datetime.fromtimestamp(seconds, datetime.UTC):%Y-%m-%d %H:%M:%S}"
    return "?"
