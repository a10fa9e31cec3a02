"""HOST: append-only JSON lines that survive a crash, and private files. Used by ledger and commands."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

BINARY = getattr(os, "O_BINARY", 0)  # Windows would write each line break as two characters
IN_USE_SECONDS = 5.0  # there a file that somebody reads can't be replaced or made anew for that moment


def write_private(path: Path, text: str) -> None:
    """Write a whole file, 0600 from its first byte, replacing what was there in one move."""
    partial = path.with_name(path.name + ".partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | BINARY, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    put_in_place(partial, path)


def put_in_place(partial: Path, path: Path) -> None:
    """os.replace, which Windows refuses while anybody has the old file open."""
    deadline = time.monotonic() + IN_USE_SECONDS
    while True:
        try:
            os.replace(partial, path)
            return
        except PermissionError:
            if os.name != "nt" or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


class JsonLines:
    """One JSON object a line. `append` returns only when the lines are on the disk.

    Opening cuts off a torn last line: its append never returned, so nobody was promised it.
    One writer at a time; readers may tail the file meanwhile (`read_lines` skips a torn end).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        mode = os.O_RDWR | os.O_CREAT | BINARY
        self._file = os.fdopen(os.open(path, mode, 0o600), "r+b", buffering=0)
        self._end = self._sound_length()
        self._file.truncate(self._end)

    def _sound_length(self) -> int:
        end = self._file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - 65536)
            self._file.seek(start)
            newline = self._file.read(end - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
        return 0

    def append(self, objects: list[dict]) -> None:
        """Add the objects in order, all or none. OSError (a full disk) leaves the file as it was."""
        self.append_bytes(b"".join(line_of(item) for item in objects))

    def append_bytes(self, whole_lines: bytes, durable: bool = True) -> None:
        """Add lines that are bytes already. durable=False: on the disk when the system sees fit."""
        data = memoryview(whole_lines)
        try:
            self._file.seek(self._end)
            written = 0
            while written < len(data):
                written += self._file.write(data[written:])
            if durable:
                self.sync()
        except OSError:
            self._file.truncate(self._end)
            raise
        self._end += len(data)

    def sync(self) -> None:
        """All that was appended onto the disk."""
        sync(self._file.fileno())

    def cut(self, offset: int) -> None:
        """Take back what was appended behind OFFSET."""
        self._end = offset
        self._file.truncate(offset)

    def overwrite(self, offset: int, data: bytes) -> None:
        """Write again what stands there, so that the system takes it for new."""
        self._file.seek(offset)
        if self._file.write(data) != len(data):
            raise OSError(f"{self.path.name} was not written whole")

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._end

    def close(self) -> None:
        self._file.close()


# Enough for an append: it also makes the new length durable. Not there on macOS and Windows.
sync = getattr(os, "fdatasync", os.fsync)


# ASCII escapes keep lone surrogates writable and every line break inside a string out of the file.
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode


def text_of(item: dict) -> bytes:
    """One object as it stands in a line."""
    return _ENCODE(item).encode("ascii")


def line_of(item: dict) -> bytes:
    """One object as a line, break included."""
    return text_of(item) + b"\n"


def read_lines(path: Path) -> Iterator[dict]:
    """Every complete object of the file in order; nothing when it does not exist."""
    try:
        with open(path, "rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield from parse_line(line)
    except FileNotFoundError:
        return


def parse_line(line: bytes) -> list[dict]:
    """The object of one line as a list of one; empty when the line is damaged."""
    try:
        item = json.loads(line)
    except (ValueError, RecursionError):
        return []
    return [item] if isinstance(item, dict) else []
