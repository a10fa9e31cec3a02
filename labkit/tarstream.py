"""HOST: the byte stream under a hostile guest's archive. Owns how much of it is read, and held in memory."""

from __future__ import annotations

import gzip
import tarfile
import time
from typing import BinaryIO

CHUNK = 256 * 1024
# tarfile reads a long name or a pax header whole, at the size the archive claims: this bounds it.
MAX_READ = 1024 * 1024


class TooLong(Exception):
    """The stream has more bytes, or takes more time, than it may; the message says which."""


def unzipped(archive: BinaryIO) -> BinaryIO:
    head = _Head(archive)
    return gzip.GzipFile(fileobj=head, mode="rb") if head.start == b"\x1f\x8b" else head


class _Head:
    """A stream whose first two bytes have been looked at; pipes and SSH channels cannot seek back."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self.start = raw.read(1)
        self.start += raw.read(1) if self.start else b""
        self._left = self.start

    def read(self, size: int = -1) -> bytes:
        if not self._left:
            return self._raw.read(size)
        given, self._left = self._left[:size], self._left[size:]
        return given


class Forward:
    """What tarfile needs of a file, on a stream: bounded reads, seeking forward only, limits."""

    def __init__(self, raw: BinaryIO, limit: int, seconds: float) -> None:
        self._raw, self._limit, self._at, self._last = raw, limit, 0, b""
        self._seconds, self._end = seconds, time.monotonic() + seconds

    def tell(self) -> int:
        return self._at

    def read(self, size: int) -> bytes:
        if not 0 <= size <= MAX_READ:
            raise tarfile.ReadError(f"a header claims {size} bytes")
        blocks, left = [], size
        while left and (block := self._raw.read(left)):
            if time.monotonic() > self._end:
                raise TooLong(f"the archive took longer than {self._seconds:g} s")
            blocks.append(block)
            left -= len(block)
        self._last = b"".join(blocks)
        self._at += len(self._last)
        if self._at > self._limit:
            raise TooLong(f"the archive is longer than {self._limit} bytes")
        return self._last

    def seek(self, position: int, whence: int = 0) -> int:
        if whence or position < self._at:
            raise tarfile.ReadError("the archive points backwards")
        while self._at < position and self.read(min(CHUNK, position - self._at)):
            pass
        return self._at

    def expect_end(self) -> None:
        """tarfile takes a bad header for the end: only a block of zeros is one. Then drains the padding."""
        if self._last != bytes(tarfile.BLOCKSIZE):
            raise tarfile.ReadError("no end mark")
        for _ in range(64):
            if not self.read(CHUNK):
                return
