"""GUEST: a command's output: a file that is bounded while it grows, and the text of it for the Worker.

Of a long output the first and the last MB stay; between them the file gets a hole, so that the offsets of
read_file hold and no disk fills. What a gate must see first has no name and does not lie in telemetry/, which
is small and holds run.db: it lies on the workspace's disk until its start has been copied.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.text import clip, decode

HEAD = TAIL = 64_000_000  # bytes that stay
MOST = 64_000_000_000  # bytes at which a command is stopped: a hole costs no space, but time
WHOLE = 1_000_000  # bytes up to which an output is read whole; beyond, its two ends
BLOCK = 4096
PUNCH_HOLE, KEEP_SIZE = 2, 1
# Behind a reviewed output, outside the block of what came from outside: it is the harness that says so.
NOT_KEPT = (
    "; what was left out of its output was not reviewed and cannot be read: "
    "run it again for less, with grep, head or tail behind it"
)


@dataclass
class Output:
    """The file of one command. path: where to open it; where: what the Worker is told, '' for nowhere."""

    sink: int
    path: Path
    where: str
    holed: int = 0  # up to which byte the hole reaches
    is_cut: bool = False  # the text that was last asked for is not all of it

    def bound(self) -> str:
        """Called again and again while the command runs. A sentence once it has to be stopped."""
        size = os.fstat(self.sink).st_size
        if size > MOST:
            return f"killed: it wrote more than {MOST // 1_000_000_000} GB of output"
        if size <= HEAD + TAIL:
            return ""
        start, end = max(HEAD, self.holed), (size - TAIL) // BLOCK * BLOCK
        if end > start and not _punch(self.sink, start, end - start):
            return f"killed: it wrote more than {(HEAD + TAIL) // 1_000_000} MB of output"
        self.holed = max(end, self.holed)
        return ""

    def note(self) -> str:
        """What is missing, in words: of the file itself, or of a text that stands nowhere else."""
        if not self.where:
            return NOT_KEPT if self.is_cut else ""
        size = os.fstat(self.sink).st_size
        if not self.holed:
            return ""
        ends = f"the first {HEAD // 10**6} and the last {TAIL // 10**6}"
        return f"; of its {size / 1e6:.0f} MB of output {ends} are kept"

    def text(self, limit: int) -> str:
        """About `limit` characters: cleaned, and cut between characters."""
        size = self.path.stat().st_size
        rest = f"; the whole text is in {self.where}" if self.where else ""
        self.is_cut = size > WHOLE
        with open(self.path, "rb") as file:
            if size <= WHOLE:
                whole = decode(file.read())
                self.is_cut = len(whole) > limit
                return clip(whole, limit, self.where)
            reach = min(limit * 4, size // 2)
            head = file.read(reach)
            file.seek(size - reach)
            tail = file.read(reach)
        first, last = decode(head)[: limit * 2 // 3], decode(tail)[-(limit // 3) :]
        missing = size - len(first.encode()) - len(last.encode())
        return f"{first}\n[about {missing} characters left out here{rest}]\n{last}"


@contextmanager
def shown_output(path: Path) -> Iterator[Output]:
    """A file that the Worker may read afterwards."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    with open(path, "wb") as sink:
        yield Output(sink.fileno(), path, str(path))


@contextmanager
def held_output(folder: Path) -> Iterator[Output]:
    """A file without a name in `folder`; gone afterwards. The command gets it for writing only."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        path = Path(f"/proc/self/fd/{file.fileno()}")
        sink = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            yield Output(sink, path, "")
        finally:
            os.close(sink)


def _punch(handle: int, start: int, length: int) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    return not libc.fallocate(handle, PUNCH_HOLE | KEEP_SIZE, ctypes.c_int64(start), ctypes.c_int64(length))
