"""HOST: what a person asks of the session: who asked what and why, in which order, and how far it came.

The CLI and the page append to commands.jsonl (two processes: an append holds a lock file, which is portable,
unlike fcntl); the gateway alone writes commands-state.jsonl. A command is `queued`, then `delivered` (the
guest was told), then `acknowledged` (it stands in the guest's record). Each has its effect once: ids only
rise, and after a crash the guest obeys from its record.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from labkit.errors import USAGE, LabError
from labkit.gateway import command_rules
from labkit.gateway.config import now_utc
from labkit.gateway.files import BINARY, JsonLines, read_lines

FILE_NAME = "commands.jsonl"
STATE_NAME = "commands-state.jsonl"
LOCK_STALE_SECONDS = 10.0  # an append takes milliseconds; an older lock belongs to a dead process
TOLD = ("id", "name", "args", "who", "why")  # what the guest gets of a command


def append(
    run_dir: Path,
    name: str,
    args: dict | None = None,
    *,
    who: dict | None = None,
    why: str = "",
    key: str = "",
) -> int:
    """Queue a command for the guest and return its id (1, 2, ...). LabError for what can't be asked.

    who: by whom it was asked, in words a reader of the record understands. key: what was asked with the same
    key already is not asked again (a page that repeats a request whose answer it lost); its id is returned.
    """
    if not Path(run_dir).is_dir():
        raise LabError(f"no run has a gateway folder at {run_dir}", "`lab status` shows the runs", USAGE)
    args, why = command_rules.checked(name, args or {}), command_rules.checked_why(why)
    try:
        return _appended(Path(run_dir) / FILE_NAME, name, args, who or {}, why, key)
    except OSError as error:
        message = f"{name} could not be written into {run_dir}: {error.strerror}"
        raise LabError(
            message, "nothing was asked; `df -h` shows whether the disk is full, `lab gc` what can go"
        ) from None


def _appended(path: Path, name: str, args: dict, who: dict, why: str, key: str) -> int:
    with _lock(path.with_name(FILE_NAME + ".lock")):
        known = _read(path)
        for item in known:
            if key and item.get("key") == key:
                return item["id"]
        command_rules.demand_within_limits(name, args, *_sums(known))
        item = {"id": max((one["id"] for one in known), default=0) + 1, "name": name, "args": args}
        by = {name: command_rules.sound(value) for name, value in who.items()}
        item |= {"time": now_utc()} | ({"who": by} if by else {}) | ({"why": why} if why else {})
        _write(path, item | ({"key": key} if key else {}))
    return item["id"]


def after(run_dir: Path, watermark: int) -> list[dict]:
    """Commands with an id above `watermark`, ascending: [{"id", "name", "args"[, "who"][, "why"]}, ...]."""
    items = _read(Path(run_dir) / FILE_NAME)
    return [{key: item[key] for key in TOLD if key in item} for item in items if item["id"] > watermark]


def listed(run_dir: Path) -> list[dict]:
    """Every command of the run as it was asked, with its `state`, oldest first."""
    states = {item["id"]: item["state"] for item in _states(run_dir)}
    return [item | {"state": states.get(item["id"], "queued")} for item in _read(Path(run_dir) / FILE_NAME)]


def extension(run_dir: Path) -> tuple[float, float]:
    """(minutes, dollars) by which the run was extended so far, whether the guest has heard of it or not."""
    return _sums(_read(Path(run_dir) / FILE_NAME))


def _sums(items: list[dict]) -> tuple[float, float]:
    given = [item["args"] for item in items if item["name"] == "extend"]
    return sum(one.get("minutes", 0.0) for one in given), sum(one.get("budget_usd", 0.0) for one in given)


class Extension:
    """`minutes` and `usd` of all extensions so far, read anew when the file changed."""

    def __init__(self, run_dir: Path) -> None:
        self._path = Path(run_dir) / FILE_NAME
        self._seen: tuple[int, int] | None = None
        self._sums = (0.0, 0.0)

    @property
    def minutes(self) -> float:
        return self._now()[0]

    @property
    def usd(self) -> float:
        return self._now()[1]

    def _now(self) -> tuple[float, float]:
        with contextlib.suppress(OSError):
            stat = self._path.stat()
            if (seen := (stat.st_mtime_ns, stat.st_size)) != self._seen:
                self._sums, self._seen = _sums(_read(self._path)), seen
        return self._sums


class Deliveries:
    """How far the commands came: the gateway's own file, one line a change. One writer."""

    def __init__(self, run_dir: Path, noted: Callable[[dict], object] = lambda item: None) -> None:
        """noted: takes down each command that is handed out for the first time (the chained ledger does)."""
        self.run_dir, self._noted = Path(run_dir), noted
        known = _states(run_dir)
        self.delivered = max((item["id"] for item in known), default=0)  # highest id the guest was told
        self.acknowledged = max((item["id"] for item in known if item["state"] == "acknowledged"), default=0)
        self._lines = JsonLines(self.run_dir / STATE_NAME)

    def hand_out(self, watermark: int) -> list[dict]:
        """What the guest is told; that it was told is on the disk before it is sent."""
        items = after(self.run_dir, watermark)
        for item in items:
            if item["id"] > self.delivered:
                self._noted(item)
        self._mark("delivered", [item["id"] for item in items if item["id"] > self.delivered])
        self.delivered = max([self.delivered, *(item["id"] for item in items)])
        return items

    def acknowledge(self, upto: int) -> int:
        """The guest's record holds every command up to this id. Returns the highest id acknowledged."""
        if upto > self.delivered:
            raise ValueError(f"command {upto} was never handed out")
        ids = [item["id"] for item in after(self.run_dir, self.acknowledged) if item["id"] <= upto]
        self._mark("acknowledged", ids)
        self.acknowledged = max(self.acknowledged, upto)
        return self.acknowledged

    def close(self) -> None:
        self._lines.close()

    def _mark(self, state: str, ids: list[int]) -> None:
        if ids:
            self._lines.append([{"id": one, "state": state, "time": now_utc()} for one in ids])


def _states(run_dir: Path) -> list[dict]:
    return [
        item
        for item in read_lines(Path(run_dir) / STATE_NAME)
        if type(item.get("id")) is int and item.get("state") in ("delivered", "acknowledged")
    ]


def _read(path: Path) -> list[dict]:
    return [
        item for item in read_lines(path) if type(item.get("id")) is int and {"name", "args"} <= set(item)
    ]


def _write(path: Path, item: dict[str, Any]) -> None:
    lines = JsonLines(path)
    try:
        lines.append([item])
    finally:
        lines.close()


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    deadline, seen = time.monotonic() + LOCK_STALE_SECONDS, None
    while True:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | BINARY, 0o600))
            break
        except FileExistsError:
            if (held := _identity(path)) != seen:  # another holder: it has its own time
                deadline, seen = time.monotonic() + LOCK_STALE_SECONDS, held
            elif time.monotonic() > deadline:
                path.unlink(missing_ok=True)
            time.sleep(0.02)
        except PermissionError:  # Windows: the last holder's file is just being removed
            if os.name != "nt" or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns
