"""HOST: what of a dead guest's disks comes home, as the tar stream that a live guest would have sent.

The receiving end (`intake.py`) is the same and trusts it as little. Links and devices travel as entries,
which that end refuses and lists; nothing of the guest's trees is written anywhere on the way.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import tarfile
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from labkit.dead_disks import BACKUPS, ROOT, TELEMETRY, Volumes
from labkit.ext4 import CHUNK, ROOT_INODE, Ext4, Inode, Unreadable
from labkit.untar import Limits, printable

MAX_PROBLEMS = 1000


def copy_out(fs: Ext4, inode: Inode, target: Path, limit: int) -> None:
    """Write one file of the guest to a new file of this host. Raises Unreadable; `limit` in bytes."""
    if not inode.is_file or inode.size > limit:
        raise Unreadable("it is no plain file" if not inode.is_file else f"it has {inode.size} bytes")
    with target.open("xb") as file:
        for chunk in fs.chunks(fs.spans(inode)):
            file.write(chunk)


def write(
    file: BinaryIO, ours: dict[str, Path | bytes], volumes: Volumes, sandbox: str, limits: Limits
) -> None:
    """The whole archive: `ours` first (name to content), then workspace, outputs and the last generation."""
    with _archive(file) as tar:
        for name, content in ours.items():
            _add_ours(tar, name, content)
        generation = last_generation(volumes)
        places = [(ROOT, f"{sandbox}/workspace", "workspace"), (TELEMETRY, "outputs", "outputs")]
        places += [(BACKUPS, generation, "backup")] if generation else []
        for label, path, name in places:
            if found := volumes.lookup(label, path):
                _add_tree(tar, *found, name, limits, volumes.problems)


def write_tree(file: BinaryIO, fs: Ext4, top: Inode, name: str, limits: Limits, problems: list[str]) -> None:
    """An archive of one file, or of a folder and all below it, under `name`."""
    with _archive(file) as tar:
        _add_tree(tar, fs, top, name, limits, problems)


def _archive(file: BinaryIO) -> tarfile.TarFile:
    return tarfile.open(
        fileobj=file, mode="w|", format=tarfile.GNU_FORMAT, errors="surrogateescape", copybufsize=CHUNK
    )


def last_generation(volumes: Volumes) -> str:
    """The name of the newest whole backup, empty when there is none."""
    fs = volumes.found.get(BACKUPS)
    try:
        names = (
            [os.fsdecode(name) for name, _ in islice(fs.entries(fs.inode(ROOT_INODE)), 10**5)] if fs else []
        )
    except Unreadable as error:
        volumes.problems.append(f"{BACKUPS}: {error}")
        return ""
    return max((name for name in names if name.startswith("gen-") and name[4:].isdecimal()), default="")


@contextlib.contextmanager
def piped(writer: Callable[[BinaryIO], None], problems: list[str]) -> Iterator[BinaryIO]:
    """What `writer` writes, to read. One that fails is noted, and cuts the stream short."""
    inlet, outlet = os.pipe()

    def run() -> None:
        try:
            with os.fdopen(outlet, "wb") as file:
                writer(file)
        except BrokenPipeError:  # the reader has enough
            pass
        except Exception as error:  # fed with hostile bytes: whatever it raises means that here it ends
            problems.append(f"the archive ends early: {type(error).__name__}: {printable(str(error))}")

    thread = threading.Thread(target=run, daemon=True)
    with os.fdopen(inlet, "rb") as reader:
        thread.start()
        try:
            yield reader
        finally:
            reader.close()
            thread.join()


def _add_ours(tar: tarfile.TarFile, name: str, content: Path | bytes) -> None:
    info = tarfile.TarInfo(name)
    info.mode = 0o644
    with content.open("rb") if isinstance(content, Path) else io.BytesIO(content) as file:
        info.size = file.seek(0, os.SEEK_END)
        file.seek(0)
        tar.addfile(info, file)


def _add_tree(
    tar: tarfile.TarFile, fs: Ext4, top: Inode, name: str, limits: Limits, problems: list[str]
) -> None:
    """A folder and all below it. What can't be read is a problem, and the rest goes on."""
    left, seen = [(name, top)], set()
    for _ in range(2 * limits.files):
        if not left:
            return
        path, inode = left.pop()
        try:
            if inode.is_folder:
                _add_folder(tar, inode, path, seen, limits)
                left += _below(fs, inode, path, limits, problems)
            else:
                _add_leaf(tar, fs, inode, path, limits)
        except Unreadable as error:
            _note(problems, path, error)
    problems.append(f"{name}: more than {2 * limits.files} files; the rest was left out")


def _note(problems: list[str], path: str, error: Exception) -> None:
    if len(problems) < MAX_PROBLEMS:
        problems.append(f"{printable(path)}: {error}")


def _add_folder(tar: tarfile.TarFile, inode: Inode, path: str, seen: set[int], limits: Limits) -> None:
    tar.addfile(_info(path, inode, tarfile.DIRTYPE))
    if inode.number in seen or path.count("/") >= limits.depth:
        raise Unreadable("a folder within itself" if inode.number in seen else "too deep")
    seen.add(inode.number)


def _below(
    fs: Ext4, folder: Inode, path: str, limits: Limits, problems: list[str]
) -> Iterator[tuple[str, Inode]]:
    """What lies in a folder, last name first: the list it goes to is worked off from its end."""
    for name, number in sorted(islice(fs.entries(folder), limits.files), reverse=True):
        below = f"{path}/{os.fsdecode(name)}"
        try:
            yield below, fs.inode(number)
        except Unreadable as error:
            _note(problems, below, error)


def _add_leaf(tar: tarfile.TarFile, fs: Ext4, inode: Inode, path: str, limits: Limits) -> None:
    if inode.is_file:
        if inode.size > limits.file_bytes:
            raise Unreadable(f"{inode.size} bytes, more than {limits.file_bytes} for one file")
        content = _Content(fs.chunks(fs.spans(inode) if inode.size else []))
        info = _info(path, inode, tarfile.REGTYPE)
        info.size = inode.size
        tar.addfile(info, content)
    elif inode.is_link:
        info = _info(path, inode, tarfile.SYMTYPE)
        info.linkname = os.fsdecode(fs.link_target(inode))
        tar.addfile(info)
    else:
        tar.addfile(_info(path, inode, tarfile.FIFOTYPE))


def _info(path: str, inode: Inode, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(path)
    info.type, info.mode, info.mtime = kind, stat.S_IMODE(inode.mode), max(inode.mtime, 0)
    return info


class _Content:
    """What tarfile reads a member's bytes from."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._left = chunks, b""

    def read(self, size: int) -> bytes:
        while len(self._left) < size and (chunk := next(self._chunks, b"")):
            self._left += chunk
        given, self._left = self._left[:size], self._left[size:]
        return given
