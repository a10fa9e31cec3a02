"""GUEST: tool read_file: part of one regular file below the workspace or the sandbox's tmp."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from harness.text import decode
from harness.tools.base import Desk, Outcome, schema

NAME = "read_file"
SCHEMA = schema(
    NAME,
    "Read a text file of the workspace. Long files come in parts: pass the offset where the last ended.",
    path={"type": "string", "description": "Relative to the workspace, or absolute below it"},
    offset={"type": "integer", "description": "Byte to start at, default 0", "optional": True},
)
FARTHEST = (1 << 63) - 1  # the kernel's largest offset


def run(arguments: dict, desk: Desk) -> Outcome:
    offset = min(max(0, arguments.get("offset") or 0), FARTHEST)
    try:
        path = allowed(arguments["path"], desk)
        raw, size, data = _read(path, offset, desk.settings.output_limit_chars)
    except (OSError, ValueError) as error:
        return Outcome(f"Not read: {getattr(error, 'strerror', None) or error}: {arguments['path'][:300]}")
    if data > offset + len(raw):
        return Outcome(
            f"[nothing is kept from offset {offset} to {data} of {size}; go on with offset {data}]"
        )
    return Outcome(_told(raw, offset, size))


def allowed(name: str, desk: Desk) -> Path:
    """The real path, links followed, if the Worker may read there: the harness itself is root."""
    paths = desk.settings.paths
    path = Path(os.path.realpath(paths.workspace / name))
    roots = [Path(os.path.realpath(root)) for root in (paths.workspace, paths.tmp)]
    if not any(path.is_relative_to(root) for root in roots):
        raise ValueError(f"only files below {paths.workspace} can be read with this tool")
    return path


def _read(path: Path, offset: int, limit: int) -> tuple[bytes, int, int]:
    """Bytes from the offset, the file's size, and where its next data is: a long output has a hole."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # a FIFO must not hold us
    with os.fdopen(handle, "rb") as file:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            raise ValueError("this is not a regular file")
        if offset >= info.st_size:  # some file systems refuse to seek far behind the end
            return b"", info.st_size, offset
        file.seek(offset)
        return _on_border(file.read(limit)), info.st_size, _next_data(handle, offset, info.st_size)


def _next_data(handle: int, offset: int, size: int) -> int:
    try:
        return os.lseek(handle, offset, os.SEEK_DATA)
    except OSError:  # behind the end, or a hole up to it
        return max(offset, size)


def _on_border(raw: bytes) -> bytes:
    """Without the torn UTF-8 character that a cut can leave at the end (binary files pass as they are)."""
    for length in range(1, min(4, len(raw)) + 1):
        if raw[-length] >= 0xC0:  # a first byte: how many should follow?
            wanted = 2 if raw[-length] < 0xE0 else 3 if raw[-length] < 0xF0 else 4
            return raw[:-length] if length < wanted else raw
        if raw[-length] < 0x80:
            return raw
    return raw


def _told(raw: bytes, offset: int, size: int) -> str:
    ended = offset + len(raw)
    if not raw:
        return f"(nothing at offset {offset}; the file has {size} bytes)"
    if ended >= size:
        return decode(raw)
    return f"{decode(raw)}\n[{size - ended} bytes follow; go on with offset {ended}]"
