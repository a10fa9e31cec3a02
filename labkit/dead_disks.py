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
TABLE_BYTES = 1 << 20
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
            for disk in present(lab_dir / "disks"):
                for label, start, size in _partitions(disk, folder, volumes.problems):
                    if label in labels and label not in volumes.found:
                        raw = folder / f"{label}.raw"
                        _copy(disk, start, size, raw, volumes.problems)
                        _add(files.enter_context(_shared(raw)), label, volumes)
            absent = [label for label in labels if not any(label in said for said in volumes.problems)]
            volumes.problems += [f"{label}: not found" for label in absent if label not in volumes.found]
            yield volumes
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copy(disk: Path, start: int, size: int, raw: Path, problems: list[str]) -> None:
    """A sparse copy of `size` bytes of what overlay and frozen disk hold together."""
    # A part of its own, since e2fsck forgets an offset (`disk?offset=N`) once it has replayed a journal.
    name = str(disk).replace(",", ",,")
    part = f"driver=raw,offset={start},size={size},file.driver=qcow2,file.file.driver=file"
    convert = ["convert", "--image-opts", "-O", "raw", f"{part},file.file.filename={name}", raw]
    try:
        disks.qemu_img(*convert)
    except LabError as error:
        # what can be read of a damaged disk is better than nothing
        problems.append(f"{disk.name}: {error.message}; what could not be read is zeros")
        disks.qemu_img(convert[0], "--salvage", *convert[1:])


def _shared(raw: Path) -> BinaryIO:
    """The copy, opened for us and for the programs that run without root."""
    file = raw.open("r+b", buffering=0)
    if os.geteuid() == 0:
        os.fchown(file.fileno(), NOBODY, NOBODY)
    return file


def _add(file: BinaryIO, label: str, volumes: Volumes) -> None:
    code = _without_root(["e2fsck", "-fy", _name(file)], file, REPAIR_SECONDS)[0]
    if code is None or code & ~REPAIRED:
        volumes.problems.append(f"{label}: e2fsck could not repair it ({code}); read as it is")
    try:
        volumes.found[label] = Ext4(file)
    except Unreadable as error:
        volumes.problems.append(f"{label}: {error}")


def _partitions(disk: Path, folder: Path, problems: list[str]) -> list[tuple[str, int, int]]:
    """(PARTLABEL, first byte, bytes) of each partition."""
    try:
        raw = _both_tables(disk, folder, problems)
        with _shared(raw) as file:
            said = _without_root(["sfdisk", "--json", _name(file)], file, LOOK_SECONDS)[1]
        table = json.loads(said)["partitiontable"]
        unit = int(table.get("sectorsize", 512))
        rows = table["partitions"]
        return [(str(row.get("name")), int(row["start"]) * unit, int(row["size"]) * unit) for row in rows]
    except (LabError, ValueError, KeyError, TypeError, AttributeError) as error:
        problems.append(f"{disk.name}: no partition table can be read: {' '.join(str(error).split())[:200]}")
        return []


def _both_tables(disk: Path, folder: Path, problems: list[str]) -> Path:
    """A file as long as the disk, empty but for the first and the last MiB: there lies the table, twice."""
    said = json.loads(disks.qemu_img("info", "-f", "qcow2", "--output=json", disk))
    length, raw = int(said["virtual-size"]), folder / f"{disk.stem}.tables"
    with raw.open("wb") as file:
        file.truncate(length)
        for start in (0, length - TABLE_BYTES):
            slice_ = folder / "slice"
            _copy(disk, start, TABLE_BYTES, slice_, problems)
            file.seek(start)
            file.write(slice_.read_bytes())
    return raw


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
