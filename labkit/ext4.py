"""HOST: reads an ext4 file system out of a disk file that a hostile guest wrote. Owns what is believed of it.

Nothing is mounted and nothing is written. debugfs could copy whole trees, but it recreates symbolic links,
opens what it writes through them, and fills the holes of a sparse giant: not as root, not on such a disk.
Layout: https://docs.kernel.org/filesystems/ext4/
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

ROOT_INODE = 2
CHUNK = 1 << 20
MAX_DIRECTORY_BYTES = 256 << 20
MAX_EXTENTS = 1 << 20  # of one file; more than a badly fragmented one of the largest size that is collected
MAX_NODES = 1 << 14  # of one file's tree of extents
MAX_LINK_BYTES = 4096
# Features that change what is read here: of others nothing is known, so nothing is read.
KNOWN_INCOMPATIBLE = 0x2 | 0x4 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x2000 | 0x4000 | 0x8000
HAS_64_BIT, BIGALLOC = 0x80, 0x200
IN_EXTENTS, IN_INODE = 0x80000, 0x10000000


class Unreadable(Exception):
    """This file, folder or file system can't be read; the message says why."""


@dataclass(frozen=True)
class Inode:
    """What a name stands for. size in bytes, times in seconds since 1970; body: the 60 bytes of i_block.

    mtime: last change of the content. ctime: last change of anything, the name of a folder included.
    """

    number: int
    mode: int
    size: int
    mtime: int
    ctime: int
    flags: int
    body: bytes

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)


class Ext4:
    """The file system in `file`, a copy of a partition. Raises Unreadable where there is none."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._length = file, file.seek(0, os.SEEK_END)
        head = self._at(1024, 1024)
        self._inodes, first, log_size, self._group_inodes = (
            _u32(head, at) for at in (0x00, 0x14, 0x18, 0x28)
        )
        incompatible, read_only = _u32(head, 0x60), _u32(head, 0x64)
        if _u16(head, 0x38) != 0xEF53:
            raise Unreadable("there is no ext4 file system")
        unknown = incompatible & ~KNOWN_INCOMPATIBLE or read_only & BIGALLOC
        if unknown or log_size > 5 or not self._group_inodes:
            raise Unreadable(f"its features ({incompatible:#x}, {read_only:#x}) are not known here")
        wide = bool(incompatible & HAS_64_BIT)
        self.block_size = 1024 << log_size
        self._blocks = _u32(head, 0x04) | (_u32(head, 0x150) << 32 if wide else 0)
        self._inode_size = _u16(head, 0x58) if _u32(head, 0x4C) else 128
        self._group_size = _u16(head, 0xFE) if wide else 32
        # What lies behind the end of the disk file can't be read, whatever the file system says of its size.
        self._blocks = min(self._blocks, self._length // self.block_size)
        self._groups = (first + 1) * self.block_size
        if self._inode_size < 128 or self._group_size < 32:
            raise Unreadable("its head is damaged")

    def inode(self, number: int) -> Inode:
        """The inode of that number."""
        if not 1 <= number <= self._inodes:
            raise Unreadable(f"there is no inode {number}")
        group, index = divmod(number - 1, self._group_inodes)
        row = self._at(self._groups + group * self._group_size, self._group_size)
        table = _u32(row, 0x08) | (_u32(row, 0x28) << 32 if self._group_size >= 64 else 0)
        raw = self._at(table * self.block_size + index * self._inode_size, 128)
        size = _u32(raw, 0x04) | _u32(raw, 0x6C) << 32
        ctime, mtime = struct.unpack_from("<ii", raw, 0x0C)
        return Inode(number, _u16(raw, 0x00), size, mtime, ctime, _u32(raw, 0x20), raw[0x28:0x64])

    def find(self, path: str) -> Inode | None:
        """What lies at `path` below the root, or None. Links on the way are not followed."""
        here = self.inode(ROOT_INODE)
        for part in path.encode().split(b"/"):
            if not part:
                continue
            if not here.is_folder:
                return None
            number = next((number for name, number in self.entries(here) if name == part), None)
            if number is None:
                return None
            here = self.inode(number)
        return here

    def entries(self, folder: Inode) -> Iterator[tuple[bytes, int]]:
        """(name, inode number) of everything in the folder but itself and the one above."""
        if folder.size > MAX_DIRECTORY_BYTES:
            raise Unreadable(f"a folder of {folder.size} bytes")
        for offset, length in self.spans(folder):
            for begin in range(0, length, self.block_size):
                if offset is not None:
                    yield from self._names(self._at(offset + begin, self.block_size))

    def _names(self, block: bytes) -> Iterator[tuple[bytes, int]]:
        at = 0
        while at + 8 <= len(block):
            number, length, name_length = _u32(block, at), _u16(block, at + 4), block[at + 6]
            if length < 8 or length % 4 or at + length > len(block) or name_length > length - 8:
                raise Unreadable("a damaged folder")
            name = block[at + 8 : at + 8 + name_length]
            if number and name not in (b"", b".", b".."):
                yield name, number
            at += length

    def spans(self, inode: Inode) -> list[tuple[int | None, int]]:
        """Where the content lies: (byte in the file system, or None for a hole, length in bytes), in order.

        All of it is checked here, so that reading what is listed can't fail later.
        """
        if inode.flags & IN_INODE or not inode.flags & IN_EXTENTS:
            raise Unreadable("its content is not in extents")
        spans: list[tuple[int | None, int]] = []
        end = 0
        for logical, count, physical in self._extents(inode.body, 6, iter(range(MAX_NODES))):
            if logical < end or not count or physical + count > self._blocks or len(spans) > 2 * MAX_EXTENTS:
                raise Unreadable("its extents are damaged")
            spans += [(None, (logical - end) * self.block_size)] if logical > end else []
            spans.append((physical * self.block_size if physical else None, count * self.block_size))
            end = logical + count
        return _cut(spans, inode.size)

    def _extents(self, node: bytes, levels: int, budget: Iterator[int]) -> Iterator[tuple[int, int, int]]:
        """(first block in the file, blocks, first block on the disk; 0 for zeros) of a node and those below.

        levels and budget: a node that points at itself, or a tree without leaves, must come to an end.
        """
        magic, count, _, depth = struct.unpack_from("<4H", node)
        if magic != 0xF30A or depth >= levels or 12 + 12 * count > len(node) or next(budget, None) is None:
            raise Unreadable("its extents are damaged")
        for at in range(12, 12 + 12 * count, 12):
            if depth:
                _, low, high = struct.unpack_from("<IIH", node, at)
                yield from self._extents(self._block(high << 32 | low), depth, budget)
            else:
                logical, length, high, low = struct.unpack_from("<IHHI", node, at)
                unwritten = length > 32768
                yield logical, length - 32768 * unwritten, 0 if unwritten else high << 32 | low

    def chunks(self, spans: list[tuple[int | None, int]]) -> Iterator[bytes]:
        """The content that lies there, 1 MiB at most at once; holes read as zeros."""
        for offset, length in spans:
            for begin in range(0, length, CHUNK):
                size = min(CHUNK, length - begin)
                yield bytes(size) if offset is None else self._at(offset + begin, size)

    def link_target(self, inode: Inode) -> bytes:
        """What a symbolic link says."""
        if inode.size > MAX_LINK_BYTES:
            raise Unreadable("a link longer than any path")
        in_place = inode.size < 60 and not inode.flags & IN_EXTENTS
        return inode.body[: inode.size] if in_place else b"".join(self.chunks(self.spans(inode)))

    def _block(self, number: int) -> bytes:
        if not 0 < number < self._blocks:
            raise Unreadable("its extents are damaged")
        return self._at(number * self.block_size, self.block_size)

    def _at(self, position: int, length: int) -> bytes:
        if position + length > self._length:
            raise Unreadable("it ends too early")
        self._file.seek(position)
        return self._file.read(length)


def _cut(spans: list[tuple[int | None, int]], size: int) -> list[tuple[int | None, int]]:
    """The spans of exactly `size` bytes: blocks behind the end go, a hole at the end is added."""
    kept = []
    for offset, length in spans:
        kept += [(offset, min(length, size))] if size else []
        size -= min(length, size)
    return kept + ([(None, size)] if size else [])


def _u16(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "little")


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")
