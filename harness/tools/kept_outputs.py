"""GUEST: bounds what telemetry/outputs/ keeps of commands' outputs: run.db lies on the same partition."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

KEPT = 4_000_000  # bytes of one output
TOTAL = 512_000_000  # bytes of all; then the oldest big ones are cut to their start
LOOK_EVERY = 16_000_000  # bytes that may come before the folder is added up again
BIG, START = 64_000, 4_000


class KeptOutputs:
    """Adds copies and cuts them. A failure here (a full disk, say) costs a copy, never a command."""

    def __init__(self, folder: Path, total: int = TOTAL, look_every: int = LOOK_EVERY) -> None:
        self.folder, self.total, self.look_every = folder, total, look_every
        self._since = look_every  # of an earlier process there may be much already

    def add(self, source: Path, name: str) -> None:
        """A copy of the first KEPT bytes under this name, where the Worker cannot reach it."""
        target = self.folder / name
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open(source, "rb") as whole, open(target, "wb") as copy:
                shutil.copyfileobj(_Bounded(whole, KEPT), copy)
                copy.write(_note(os.fstat(whole.fileno()).st_size, KEPT))
            self._account(target)
        except OSError:
            return

    def _account(self, path: Path) -> None:
        self._since += path.stat().st_size
        if self._since >= self.look_every:
            self._make_room()
            self._since = 0

    def _make_room(self) -> None:
        found = [(entry.stat(), entry.path) for entry in os.scandir(self.folder) if entry.is_file()]
        used = sum(info.st_size for info, _ in found)
        for info, path in sorted(found, key=lambda item: item[0].st_mtime_ns):
            if used <= self.total:
                return
            if info.st_size > BIG:
                _cut(Path(path), START)
                used -= info.st_size - START


def _cut(path: Path, length: int) -> None:
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.truncate(length)
        file.seek(0, os.SEEK_END)
        file.write(_note(size, length))


def _note(size: int, kept: int) -> bytes:
    """Nothing where nothing is missing."""
    return b"\n[the harness kept %d of %d bytes]\n" % (kept, size) if size > kept else b""


class _Bounded:
    """Reads at most `left` bytes of a file."""

    def __init__(self, file, left: int) -> None:  # type: ignore[no-untyped-def]
        self.file, self.left = file, left

    def read(self, size: int) -> bytes:
        part = self.file.read(min(size, self.left))
        self.left -= len(part)
        return part
