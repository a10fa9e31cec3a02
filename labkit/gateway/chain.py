"""HOST: ledger.jsonl: one hash chain of everything a gateway heard. Owns its format and its head.

A line is {"n", "at", "kind", "body", "prev"}: `n` counts from 1, `at` is this host's time (UTC), `prev` the
SHA-256 of the line before it (64 zeros for the first). The head is the number and the SHA-256 of the last
line; `ledger.head` keeps it beside the file, so that a cut tail shows.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from labkit.gateway import journal
from labkit.gateway.files import parse_line, text_of, write_private
from labkit.gateway.journal import JournaledLines

LEDGER = "ledger.jsonl"
HEAD = "ledger.head"
GENESIS = "0" * 64
HEAD_EVERY_SECONDS = 5.0  # the head's file costs a second fsync: not with every batch

# A line as `append_texts` writes it; the group is the body's text as it came.
_LINE = re.compile(rb'\{"n":\d+,"at":"[^"]*","kind":"\w+","body":(\{.*\}),"prev":"[0-9a-f]{64}"\}\n')


@dataclass(frozen=True)
class Head:
    """The end of a chain. n: 0 and sha256: 64 zeros while it is empty."""

    n: int = 0
    sha256: str = GENESIS


class Chain:
    """The chain of one run, open for appending. One process at a time."""

    def __init__(self, run_dir: Path, each: Callable[[dict], None] = lambda _record: None) -> None:
        """Open it, cut off a half-written last line, and show `each` the records that are there.

        `broken` then says in words what does not hold of what was there; '' when all does.
        """
        self.run_dir = Path(run_dir)
        self._lines = JournaledLines(self.run_dir / LEDGER)
        self.restored = self._lines.restored
        self.head, self.broken = Head(), ""
        for line in _lines_of(self._lines.path):
            record = (parse_line(line) or [{}])[0]
            if record.get("prev") != self.head.sha256 and not self.broken:
                self.broken = f"line {self.head.n + 1} does not follow from the line before it"
            self.head = Head(self.head.n + 1, hash_of(line))
            each(record)
        kept = read_head(self.run_dir)
        if kept.n > self.head.n:
            self.broken = f"it ends at line {self.head.n}, and line {kept.n} was there"
        self._head_kept = time.monotonic()

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._lines.size

    def append(self, records: list[tuple[str, dict]]) -> None:
        """Add (kind, body) records in order, all or none; durable on return. OSError: none is held."""
        self.append_texts([(kind, text_of(body)) for kind, body in records])

    def append_texts(self, records: list[tuple[str, bytes]]) -> None:
        """The same with bodies that are text already: one JSON object each, in one line of ASCII."""
        at, n, prev, lines = _at(int(time.time())), self.head.n, self.head.sha256, []
        for kind, body in records:
            n += 1
            line = b'{"n":%d,"at":"%s","kind":"%s","body":%s,"prev":"%s"}' % (
                n, at, kind.encode(), body, prev.encode(),
            )  # fmt: skip
            prev = hashlib.sha256(line).hexdigest()
            lines.append(line)
        lines.append(b"")
        self._lines.append_bytes(b"\n".join(lines))
        self.head = Head(n, prev)
        if time.monotonic() - self._head_kept > HEAD_EVERY_SECONDS:
            self.keep_head()

    def keep_head(self) -> None:
        """Write ledger.head. OSError where the disk takes no more; the chain itself is whole then."""
        write_private(self.run_dir / HEAD, json.dumps({**asdict(self.head), "at": _now()}) + "\n")
        self._head_kept = time.monotonic()

    def close(self) -> None:
        self._lines.close()


def mend(run_dir: Path) -> None:
    """After a power cut: the ledger as it was acknowledged. Not while a gateway writes it. OSError."""
    journal.mend(Path(run_dir) / LEDGER)


def text_in(line: bytes) -> bytes | None:
    """The text of a line's body, as it came; None where the line is none of ours."""
    found = _LINE.fullmatch(line)
    return found[1] if found else None


def hash_of(line: bytes) -> str:
    """SHA-256 of a line without its break: `sed -n Np ledger.jsonl | tr -d '\\n' | sha256sum` agrees."""
    return hashlib.sha256(line.rstrip(b"\n")).hexdigest()


def read_head(run_dir: Path) -> Head:
    """What ledger.head says; an empty Head where there is none or it cannot be read."""
    try:
        kept = json.loads((Path(run_dir) / HEAD).read_text(encoding="utf-8"))
        return Head(int(kept["n"]), str(kept["sha256"]))
    except (OSError, ValueError, LookupError, TypeError):
        return Head()


def records(path: Path) -> Iterator[tuple[dict[str, Any], bytes]]:
    """(record, its line) of every whole line; an empty dict for one that is no JSON object."""
    for line in _lines_of(path):
        yield (parse_line(line) or [{}])[0], line


def end_of(run_dir: Path) -> Head:
    """The head as the file itself gives it, opened for reading only; empty where there is none."""
    number, last = 0, b""
    for number, last in enumerate(_lines_of(Path(run_dir) / LEDGER), start=1):  # noqa: B007
        pass
    return Head(number, hash_of(last)) if number else Head()


def _lines_of(path: Path) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield line
    except FileNotFoundError:
        return


def _now() -> str:
    return _at(int(time.time())).decode()


@functools.lru_cache(maxsize=2)
def _at(epoch: int) -> bytes:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)).encode()
