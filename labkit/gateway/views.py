"""HOST: events.jsonl and requests.jsonl: what people and other parts read of the ledger, one matter a file.

They follow the ledger and are never ahead of it; one that a crash or a full disk left behind is written anew
from it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from labkit.gateway import chain
from labkit.gateway.files import BINARY, JsonLines, line_of, put_in_place

EVENTS = "events.jsonl"
REQUESTS = "requests.jsonl"
SEEN = "seen"  # key in the body of an exchange: hashes for `lab verify`, of no use to a person

log = logging.getLogger("labkit.gateway")


def event_line(body: dict, line: bytes) -> bytes:
    """As it came."""
    text = chain.text_in(line)
    return line_of(body) if text is None else text + b"\n"


def request_line(body: dict, _line: bytes = b"") -> bytes:
    return line_of({key: value for key, value in body.items() if key != SEEN})


# kind -> file, and what it has of a record, given its body and its line.
KINDS: dict[str, tuple[str, Callable[[dict, bytes], bytes]]] = {
    "event": (EVENTS, event_line),
    "exchange": (REQUESTS, request_line),
}


class View:
    """One of the two files, open for appending."""

    def __init__(self, run_dir: Path, kind: str) -> None:
        self.run_dir, self.kind = Path(run_dir), kind
        name, _ = KINDS[kind]
        self.path = self.run_dir / name
        self._lines: JsonLines | None = None
        _heal(self.run_dir, kind)
        self._lines = JsonLines(self.path)

    def append_lines(self, lines: bytes) -> None:
        """Add what the ledger holds already. A failure is no loss: the file is mended at the next chance."""
        try:
            if self._lines is None:
                _heal(self.run_dir, self.kind)
                self._lines = JsonLines(self.path)
            else:
                self._lines.append_bytes(lines, durable=False)
        except OSError as error:
            log.error("%s is behind the ledger: %s", self.path.name, error)
            self.close()

    def close(self) -> None:
        if self._lines is not None:
            self._lines.close()
            self._lines = None


def heal(run_dir: Path) -> None:
    """Bring the ledger up to what was acknowledged, and both files up to it. Not while a gateway writes."""
    if (Path(run_dir) / chain.LEDGER).is_file():
        chain.mend(run_dir)
        for kind in KINDS:
            _heal(Path(run_dir), kind)


def _heal(run_dir: Path, kind: str) -> None:
    name, _ = KINDS[kind]
    path = run_dir / name
    if _agrees(path, _wanted(run_dir, kind)):
        return
    partial = path.with_name(name + ".partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | BINARY, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.writelines(_wanted(run_dir, kind))
    put_in_place(partial, path)


def _wanted(run_dir: Path, kind: str) -> Iterator[bytes]:
    _, line = KINDS[kind]
    for record, whole in chain.records(run_dir / chain.LEDGER):
        if record.get("kind") == kind and isinstance(record.get("body"), dict):
            yield line(record["body"], whole)


def _agrees(path: Path, wanted: Iterator[bytes]) -> bool:
    try:
        with open(path, "rb") as file:
            return all(file.read(len(line)) == line for line in wanted) and not file.read(1)
    except FileNotFoundError:
        return False
