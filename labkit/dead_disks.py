"""HOST: the disks of a guest that is off, as file systems to read. Owns the raw copies and their repair.

The copies are private and go away afterwards; the guest's own disks are not changed. Programs that parse what
the guest wrote run without root, with a limit of memory and time.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from labkit import disks
from labkit.errors import LabError
from labkit.ext4 import Ext4, Inode, Unreadable

TELEMETRY, MIRROR, BACKUPS, ROOT = "lab-telemetry", "lab-mirror", "lab-backups", "lab-root"
LABELS = (TELEMETRY, MIRROR, BACKUPS, ROOT)
FOLDER = "offline"
NOBODY = 65534
REPAIR_SECONDS, LOOK_SECONDS = 1800, 60
MEMORY_BYTES = 4 << 30
REPAIRED = 0b11  # e2fsck's exit code: bits of "errors corrected"; any other bit says that something is left
SPARE_BYTES = 1 << 30


@dataclass
class Volumes:
    """Partition label to its file system. problems: what could not be read, as sentences."""

    found: dict[str, Ext4] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def lookup(self, label: str, path: str) -> tuple[Ext4, Inode] | None:
        """The thing at `path` of that partition; None where either is missing or can't be read."""
        if (fs := self.found.get(label)) is None:
            return None
        try:
            inode = fs.find(path)
        except Unreadable as error:
            self.problems.append(f"{label}: {path or '/'}: {error}")
            return None
        return None if inode is None else (fs, inode)


def present(disks_dir: Path) -> list[Path]:
    """The guest's disk files that exist."""
    return [path for name in disks.WRITABLE.values() if (path := disks_dir / name).is_file()]


def demand_room(lab_dir: Path) -> None:
    """LabError with both numbers when this host has no room for copies of the guest's disks."""
    chains = [chain(path) for path in present(lab_dir / "disks")]
    needed = sum(path.stat().st_blocks * 512 for links in chains for path in links) + SPARE_BYTES
    free = shutil.disk_usage(lab_dir).free
    if free < needed:
        raise LabError(
            f"reading the guest's disks takes up to {needed / 2**30:.1f} GiB in {lab_dir},"
            f" {free / 2**30:.1f} are free",
            "make room (`lab gc` shows what can go), then `lab collect` again",
        )


def chain(path: Path) -> list[Path]:
    """A disk file and what it stands on."""
    said = json.loads(disks.qemu_img("info", "-U", "-f", "qcow2", "--backing-chain", "--output=json", path))
    return [Path(link["filename"]) for link in said]


@contextlib.contextmanager
def opened(lab_dir: Path, labels: tuple[str, ...] = LABELS) -> Iterator[Volumes]:
    """The file systems of these partitions, on copies of the guest's disks, journals replayed.

    The guest must be off. What can't be read is in `problems`, not an exception. LabError where the copies
    can't be made.
    """
    folder = lab_dir / FOLDER
    shutil.rmtree(folder, ignore_errors=True)  # of one that was interrupted
    folder.mkdir(mode=0o700)
    volumes = Volumes()
    try:
        with contextlib.ExitStack() as files:
            for path in present(lab_dir / "disks"):
                raw = _raw_copy(path, folder, volumes.problems)
                file = files.enter_context(raw.open("r+b", buffering=0))
                _add_partitions(file, path.name, labels, volumes)
            absent = [label for label in labels if not any(label in said for said in volumes.problems)]
            volumes.problems += [f"{label}: not found" for label in absent if label not in volumes.found]
            yield volumes
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _raw_copy(path: Path, folder: Path, problems: list[str]) -> Path:
    """A sparse copy of what overlay and frozen disk hold together."""
    raw = folder / f"{path.stem}.raw"
    convert = ["convert", "-f", "qcow2", "-O", "raw"]
    try:
        disks.qemu_img(*convert, path, raw)
    except LabError as error:
        # what can be read of a damaged disk is better than nothing
        problems.append(f"{path.name}: {error.message}; what could not be read is zeros")
        disks.qemu_img(*convert, "--salvage", path, raw)
    return raw


def _add_partitions(file: BinaryIO, disk: str, labels: tuple[str, ...], volumes: Volumes) -> None:
    if os.geteuid() == 0:
        os.fchown(file.fileno(), NOBODY, NOBODY)
    for label, offset in _partitions(file, disk, volumes.problems):
        if label not in labels or label in volumes.found:
            continue
        code = _without_root(["e2fsck", "-fy", f"{_name(file)}?offset={offset}"], file, REPAIR_SECONDS)[0]
        if code is None or code & ~REPAIRED:
            volumes.problems.append(f"{label}: e2fsck could not repair it ({code}); read as it is")
        try:
            volumes.found[label] = Ext4(file, offset)
        except Unreadable as error:
            volumes.problems.append(f"{label}: {error}")


def _partitions(file: BinaryIO, disk: str, problems: list[str]) -> list[tuple[str, int]]:
    """(PARTLABEL, first byte) of each partition."""
    code, said = _without_root(["sfdisk", "--json", _name(file)], file, LOOK_SECONDS)
    try:
        table = json.loads(said)["partitiontable"]
        size = int(table.get("sectorsize", 512))
        return [(str(row.get("name", "")), int(row["start"]) * size) for row in table["partitions"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        problems.append(f"{disk}: no partition table can be read ({code})")
        return []


def _name(file: BinaryIO) -> str:
    # By its descriptor: the folder is closed to everybody but root, these programs included.
    return f"/proc/self/fd/{file.fileno()}"


def _without_root(command: list[str], file: BinaryIO, seconds: float) -> tuple[int | None, str]:
    """Exit code (None: not in time) and the first MiB of standard output of a program that gets `file`."""
    nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    wrapped = ["prlimit", f"--as={MEMORY_BYTES}", "timeout", "--signal=KILL", str(seconds), *command]
    try:
        with subprocess.Popen(
            wrapped,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=[file.fileno()],
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
            **nobody,
        ) as child:
            said = child.stdout.read(1 << 20)
            while child.stdout.read(1 << 20):  # a hostile file system makes e2fsck talk without end
                pass
    except FileNotFoundError as error:
        raise LabError(
            f"{error.filename} is not installed", "`./lab doctor` installs what is missing"
        ) from error
    code = child.returncode
    return (None if code in (137, -9) else code), said.decode(errors="replace")
