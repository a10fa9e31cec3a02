"""HOST: the byte stream under a hostile guest's archive. Owns how much of it is read, and held in memory."""

from __future__ import annotations

import gzip
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

CHUNK = 256 * 1024
# tarfile reads a long name or a pax header whole, at the size the archive claims: this bounds it.
MAX_READ = 1024 * 1024
# And all that stands before one file: chained headers, and the map of a sparse file, which it keeps as well.
# Room for a file of some 80,000 pieces.
MAX_HEADERS = 2 * 1024 * 1024


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
        self._headers: int | None = None  # bytes that may still be read of them; None: content is read

    @contextmanager
    def headers(self) -> Iterator[None]:
        """What is read in the block is what stands before one file. What is skipped does not count."""
        self._headers = MAX_HEADERS
        try:
            yield
        finally:
            self._headers = None

    def tell(self) -> int:
        return self._at

    def read(self, size: int) -> bytes:
        if not 0 <= size <= MAX_READ:
            raise tarfile.ReadError(f"a header claims {size} bytes")
        if self._headers is not None:
            self._headers -= size
            if self._headers < 0:
                raise tarfile.ReadError(f"the headers of one file are longer than {MAX_HEADERS} bytes")
        return self._take(size)

    def _take(self, size: int) -> bytes:
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
        while self._at < position and self._take(min(CHUNK, position - self._at)):
            pass
        return self._at

    def expect_end(self) -> None:
        """tarfile takes a bad header for the end: only a block of zeros is one. Then drains the padding."""
        if self._last != bytes(tarfile.BLOCKSIZE):
            raise tarfile.ReadError("no end mark")
        for _ in range(64):
            if not self.read(CHUNK):
                return


def members(stream: Forward) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """Each file of the archive, with the reader that has its content until the next is asked for."""
    with stream.headers():  # it reads the first member's
        tar = tarfile.TarFile(fileobj=stream, mode="r")
    with tar:
        while True:
            with stream.headers():
                member = tar.next()
            if member is None:
                return
            yield tar, member
            # tarfile remembers every member and global header it has seen
            tar.members, tar.pax_headers = [], {}


def is_in_order(pieces: list[tuple[int, int]]) -> bool:
    """(offset, size) of what is no hole, as tar writes them: in another order tarfile searches for each."""
    ends = [0, *(offset + size for offset, size in pieces)]
    return all(size >= 0 and offset >= end for (offset, size), end in zip(pieces, ends, strict=False))
