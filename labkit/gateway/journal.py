"""HOST: makes appends to a growing file durable with little waiting. Owns NAME.journal beside the file.

Forcing a file that grew onto the disk waits for the file system's bookkeeping, and so for what all other
programs write; forcing bytes that were overwritten in place waits for the disk only. So what is appended is
also written into a journal of fixed length, and that is forced. When it is full, the file itself is, and the
journal begins again at its front. After a power cut the file is brought up to its journal.

The journal is a row of frames: "OFFSET LENGTH SUM\\n", then LENGTH bytes that stand at OFFSET of the file.
Offsets only grow, so what an earlier round left behind the last frame counts for nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import zlib
from pathlib import Path
from typing import BinaryIO

from labkit.gateway.files import BINARY, JsonLines, sync

ROOM = 1 << 20  # bytes: some hundred single rows. A longer batch forces the file itself

_FORCED = getattr(os, "O_DSYNC", 0)  # each write waits for the disk by itself: a call less. Not on Windows
_HEADER = re.compile(rb"(\d{1,20}) (\d{1,9}) ([0-9a-f]{8})\n")

log = logging.getLogger("labkit.gateway")


class JournaledLines:
    """As JsonLines, with a journal. `restored`: bytes of the file that a power cut had taken."""

    def __init__(self, path: Path) -> None:
        self.path, self._place = path, journal_of(path)
        self.restored = _restore(path)
        self._lines = JsonLines(path)
        self._lines.sync()  # lines of a killed process may be in the system's memory only
        self._at = 0  # where the next frame goes
        self._journal = self._made()
        self._failed = self._doubtful = False

    def append_bytes(self, whole_lines: bytes) -> None:
        """Add lines, all or none; durable on return. OSError leaves the file as it was."""
        offset = self._lines.size
        self._lines.append_bytes(whole_lines, durable=False)
        try:
            self._secure(offset, whole_lines)
        except OSError:
            self._lines.cut(offset)
            raise

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._lines.size

    def close(self) -> None:
        """No journal is left behind, unless the disk takes no more: then it is needed."""
        with contextlib.suppress(OSError):
            self._force()
            self._abandon()
        self._lines.close()

    def _secure(self, offset: int, data: bytes) -> None:
        frame = b"%d %d %08x\n%s" % (offset, len(data), _sum(offset, data), data)
        if self._journal is None or self._failed or self._at + len(frame) > ROOM:
            self._force()
            if self._failed:  # it may hold a frame that was taken back: nobody may believe it later
                self._abandon()
            return
        try:
            self._journal.seek(self._at)
            if self._journal.write(frame) != len(frame):
                raise OSError(f"{self._place.name} was not written whole")
            if not _FORCED:
                sync(self._journal.fileno())
        except OSError:
            self._failed = True
            raise
        self._at += len(frame)

    def _force(self) -> None:
        """The file itself onto the disk; the journal begins again."""
        if self._doubtful:  # a system that failed to write may hold for written what is not: once more, then
            offset, data = _kept(self._place, self._at)
            self._lines.overwrite(offset, data)
        try:
            self._lines.sync()
        except OSError:
            self._doubtful = True
            raise
        self._doubtful, self._at = False, 0

    def _made(self) -> BinaryIO | None:
        """Written from end to end: filling a hole would be bookkeeping again. None where there is no room."""
        mode = os.O_RDWR | os.O_CREAT | _FORCED | BINARY
        with contextlib.ExitStack() as stack:
            try:
                descriptor = os.open(self._place, mode, 0o600)
                file = stack.enter_context(os.fdopen(descriptor, "r+b", buffering=0))
                file.write(bytes(ROOM))
                os.fsync(descriptor)
            except OSError as error:
                log.warning("no %s, each batch forces the whole file: %s", self._place.name, error)
                return None
            stack.pop_all()
            return file

    def _abandon(self) -> None:
        """No journal from here on. OSError where it cannot be removed."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        _remove(self._place)
        self._failed = False


def journal_of(path: Path) -> Path:
    return path.with_name(path.name + ".journal")


def mend(path: Path) -> None:
    """Bring a file up to its journal, which then goes. Not while somebody appends."""
    if journal_of(path).is_file():
        _restore(path)
        with open(path, "rb+") as file:
            os.fsync(file.fileno())
        _remove(journal_of(path))


def _restore(path: Path) -> int:
    """How many bytes of the file were not what its journal has; they are now."""
    offset, data = _kept(journal_of(path))
    if not data or not path.is_file() or path.stat().st_size < offset:
        return 0
    with open(path, "rb+") as file:
        file.seek(offset)
        there = file.read()
        if there.startswith(data):  # as after a kill: the system wrote what the process could not force
            return 0
        same = len(os.path.commonprefix([there, data]))
        file.seek(offset + same)
        file.write(data[same:])
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
    return len(data) - same


def _kept(journal: Path, upto: int | None = None) -> tuple[int, bytes]:
    """(offset, bytes from there on) that whole frames hold."""
    try:
        raw = journal.read_bytes()[:upto]
    except FileNotFoundError:
        return 0, b""
    begins, data, at = None, b"", 0
    while header := _HEADER.match(raw, at):
        offset, length, at = int(header[1]), int(header[2]), header.end() + int(header[2])
        piece = raw[header.end() : at]
        begins = offset if begins is None else begins
        whole = len(piece) == length and _sum(offset, piece) == int(header[3], 16)
        if not whole or offset != begins + len(data):
            break
        data += piece
    return begins or 0, data


def _sum(offset: int, data: bytes) -> int:
    """Over the offset as well: of a frame that was half written over, the front may be the new one's."""
    return zlib.crc32(data, zlib.crc32(b"%d %d" % (offset, len(data))))


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
