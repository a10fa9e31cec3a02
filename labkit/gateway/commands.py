"""HOST: commands.jsonl: what a person asks of the session. The CLI appends, the gateway hands out.

Two processes touch the file, so an append holds a lock file (portable, unlike fcntl).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from labkit.errors import USAGE, LabError
from labkit.gateway.config import now_utc
from labkit.gateway.files import JsonLines, read_lines

FILE_NAME = "commands.jsonl"
NAMES = ("finish",)  # finish: go to the final report now
LOCK_STALE_SECONDS = 10.0  # an append takes milliseconds; an older lock belongs to a dead process


def append(run_dir: Path, name: str, args: dict | None = None) -> int:
    """Queue a command for the guest and return its id (1, 2, ...). LabError for an unknown name."""
    if name not in NAMES:
        raise LabError(f"no command is called {name!r}", f"there are: {', '.join(NAMES)}", USAGE)
    if not Path(run_dir).is_dir():
        raise LabError(f"no run has a gateway folder at {run_dir}", "`lab status` shows the runs", USAGE)
    path = Path(run_dir) / FILE_NAME
    with _lock(path.with_name(FILE_NAME + ".lock")):
        command_id = max((item["id"] for item in _read(path)), default=0) + 1
        lines = JsonLines(path)
        try:
            lines.append([{"id": command_id, "name": name, "args": args or {}, "time": now_utc()}])
        finally:
            lines.close()
    return command_id


def after(run_dir: Path, watermark: int) -> list[dict]:
    """Commands with an id above `watermark`, ascending: [{"id", "name", "args"}, ...]."""
    keys = ("id", "name", "args")
    items = _read(Path(run_dir) / FILE_NAME)
    return [{key: item[key] for key in keys} for item in items if item["id"] > watermark]


def _read(path: Path) -> list[dict]:
    return [
        item for item in read_lines(path) if type(item.get("id")) is int and {"name", "args"} <= set(item)
    ]


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    deadline = time.monotonic() + LOCK_STALE_SECONDS
    while True:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            break
        except FileExistsError:
            if time.monotonic() > deadline:
                path.unlink(missing_ok=True)
            time.sleep(0.02)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
