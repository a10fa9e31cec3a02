"""GUEST: finds after each step what is new below notes/ and scripts/, and makes it append-only.

Only folders whose time of change moved are read again: a step costs one look a folder, not one a file. A file
that a process still has open for writing is left until it is closed, and so is its folder: what is half done
may have to be cut or renamed. notes/ and scripts/ themselves are append-only from the start.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from harness.append_only import Unsupported, is_being_written, protect

TOPS = ("notes", "scripts")
# These programs rewrite their own files all the time; until the seal the backups are their guarantee.
EXEMPT = frozenset({"__pycache__", ".git", "node_modules", ".pytest_cache", ".mypy_cache", ".ruff_cache"})
ENVIRONMENT = "pyvenv.cfg"  # a folder with this file is a virtual environment
DEEPEST = 40
HASHED = 64_000_000  # bytes; a larger file is known by its size
UNSETTLED_NS = 50_000_000  # a folder changed this recently may change again within the same time stamp
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class File:
    """A file that is new and closed. path: in the workspace. mark: changes when the file does, or None."""

    path: str
    size: int
    sha256: str | None
    mark: tuple[int, int, int] | None


@dataclass
class Found:
    """What one sweep found. problem: why the attribute cannot be set here, or ''."""

    closed: list[File] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    problem: str = ""
    complete: bool = True


@dataclass
class Seen:
    """A folder as it was: time of change in ns (0: look again), names of its files and folders."""

    changed: int = 0
    files: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)  # files that are still being written
    exempt: bool = False
    whole: bool = False  # every file was looked at
    protected: bool = False


class Sweep:
    """Remembers what it saw. protects: set the attribute, or only look."""

    def __init__(self, workspace: Path, protects: bool) -> None:
        self.workspace, self.protects = workspace, protects
        self.folders: dict[str, Seen] = {}
        self.found, self.ends = Found(), 0.0

    def run(self, seconds: float) -> Found:
        """Look for that long at most; what is left is found by the next sweep."""
        self.found, self.ends = Found(), time.monotonic() + seconds
        for top in TOPS:
            try:
                with _opened(self.workspace / top, os.O_DIRECTORY) as handle:
                    self._protect(handle)
                    self._visit(top, handle, 0)
            except OSError as error:
                self.found.problem = self.found.problem or f"{top}: {error.strerror}"
        return self.found

    def _visit(self, path: str, handle: int, depth: int) -> None:
        seen = self.folders.setdefault(path, Seen())
        if seen.changed != os.fstat(handle).st_ctime_ns or seen.waiting:
            self._read(path, handle, seen)
        if seen.exempt or depth >= DEEPEST:
            return
        for name in sorted(seen.folders):
            if time.monotonic() > self.ends:
                self.found.complete = False
                return
            try:
                with _opened(name, os.O_DIRECTORY, handle) as below:
                    self._visit(f"{path}/{name}", below, depth + 1)
            except OSError:
                continue  # it went while we looked: its parent's time of change has moved
        if depth and seen.whole and not seen.waiting and not seen.protected:
            self._protect(handle)
            seen.protected = True

    def _read(self, path: str, handle: int, seen: Seen) -> None:
        changed = os.fstat(handle).st_ctime_ns
        files, folders = _entries(handle)
        seen.exempt = ENVIRONMENT in files and path not in TOPS
        if seen.exempt:
            seen.changed, seen.waiting = changed, set()
            return
        self._forget(path, seen, files, folders)
        seen.folders, seen.whole = folders, False
        for name in sorted(files - seen.files):
            if time.monotonic() > self.ends:
                self.found.complete = False
                return  # seen.changed stays as it was: this folder is read again
            self._take(path, name, handle, seen)
        is_settled = abs(time.time_ns() - changed) > UNSETTLED_NS
        seen.changed, seen.whole = changed if is_settled else 0, True

    def _forget(self, path: str, seen: Seen, files: set[str], folders: set[str]) -> None:
        self.found.gone += [f"{path}/{name}" for name in sorted((seen.files | seen.waiting) - files)]
        seen.files &= files
        seen.waiting &= files
        for name in seen.folders - folders:
            self._forget_all(f"{path}/{name}")

    def _forget_all(self, path: str) -> None:
        for known in [known for known in self.folders if known == path or known.startswith(f"{path}/")]:
            self._forget(known, self.folders.pop(known), set(), set())

    def _take(self, path: str, name: str, folder: int, seen: Seen) -> None:
        try:
            with _opened(name, 0, folder) as handle:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    return
                if is_being_written(handle):
                    seen.waiting.add(name)
                    self.found.written.append(f"{path}/{name}")
                    return
                if self.protects and path.startswith("scripts"):
                    _make_executable(handle)
                is_safe = self._protect(handle)
                self.found.closed.append(describe(f"{path}/{name}", handle, is_safe))
        except OSError:
            return  # gone or closed to us; the next sweep tries again
        seen.files.add(name)
        seen.waiting.discard(name)

    def _protect(self, handle: int) -> bool:
        if self.protects:
            try:
                protect(handle)
                return True
            except Unsupported as reason:
                self.found.problem = f"the file system of notes/ and scripts/ has no append-only: {reason}"
        return False


def describe(path: str, handle: int, is_protected: bool) -> File:
    """What the inventory keeps of a file. No mark where a write may still fall into the same time stamp."""
    info = os.fstat(handle)
    digest = hash_start(handle, info.st_size) if info.st_size <= HASHED else None
    is_settled = is_protected or abs(time.time_ns() - info.st_ctime_ns) > UNSETTLED_NS
    return File(path, info.st_size, digest, mark(info) if is_settled else None)


def mark(info: os.stat_result) -> tuple[int, int, int]:
    """What cannot stay as it was when the file's content is changed."""
    return info.st_ino, info.st_ctime_ns, info.st_size


def hash_start(handle: int, size: int) -> str:
    """SHA-256 of the first `size` bytes."""
    digest, at = hashlib.sha256(), 0
    while at < size and (part := os.pread(handle, min(1 << 20, size - at), at)):
        digest.update(part)
        at += len(part)
    return digest.hexdigest()


def _entries(handle: int) -> tuple[set[str], set[str]]:
    """Names of plain files and of folders that are not exempt. Links and devices hold nothing to lose."""
    files, folders = set(), set()
    with os.scandir(handle) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in EXEMPT:
                    folders.add(entry.name)
            elif entry.is_file(follow_symlinks=False):
                files.add(entry.name)
    return files, folders


def _make_executable(handle: int) -> None:
    """chmod fails on an append-only file: a script gets now what `chmod +x` would give it."""
    mode = stat.S_IMODE(os.fstat(handle).st_mode)
    if not mode & 0o111 and os.pread(handle, 2, 0) == b"#!":
        with suppress(OSError):
            os.fchmod(handle, mode | (mode & 0o444) >> 2)


@contextmanager
def _opened(path: Path | str, more: int, folder: int | None = None) -> Iterator[int]:
    handle = os.open(path, READ | more, dir_fd=folder)
    try:
        yield handle
    finally:
        os.close(handle)
