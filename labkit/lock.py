"""HOST: one command at a time on a lab, and which. The kernel drops a lock with its holder: none is stale."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path

from labkit.errors import LabError

TRIES, PAUSE_SECONDS = 10, 0.02  # `holder` may have the lock for an instant: that is no command at work


@dataclass(frozen=True)
class Holder:
    """The command that is at work on a lab. verb: `up`, `run --resume`. since: local time, ISO 8601."""

    lab: str
    verb: str
    pid: int | None
    since: str

    def said(self) -> str:
        """A clause for a person."""
        clock = self.since.partition("T")[2][:8] or "?"
        return (
            f"`lab {self.verb}` (process {self.pid or '?'}, since {clock}) is at work on the lab '{self.lab}'"
        )

    def as_dict(self) -> dict[str, str | int | None]:
        return {"verb": self.verb, "pid": self.pid, "since": self.since}


@contextlib.contextmanager
def hold(state_dir: Path, name: str, verb: str) -> Iterator[None]:
    """Keep every other `hold` of this lab out; LabError at once, naming the holder, when there is one.

    The file lies beside the lab's folder, not in it: `lab down` removes the folder while it holds the lock.
    It goes when there is no such lab afterwards, and so does a `state_dir` that was made for it: a command
    that was refused leaves nothing behind.
    """
    made = [folder for folder in (state_dir, *state_dir.parents) if not folder.exists()]
    path = _path(state_dir, name)
    with _locked(path, name) as file:
        file.truncate(0)
        file.write(f"{verb} {os.getpid()} {time.strftime('%Y-%m-%dT%H:%M:%S%z')}\n")
        file.flush()
        try:
            yield
        finally:
            if not (state_dir / name).exists():
                path.unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # something else lies there by now
                    for folder in made:
                        folder.rmdir()


def holder(state_dir: Path, name: str) -> Holder | None:
    """The command that is at work on this lab, or None. Makes nothing and waits for nobody."""
    try:
        file = _path(state_dir, name).open()
    except OSError:
        return None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read(file.read(), name)
    return None


@contextlib.contextmanager
def briefly(path: Path) -> Iterator[None]:
    """Wait for the lock of `path`, for a change that takes milliseconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _path(state_dir: Path, name: str) -> Path:
    return state_dir / f".{name}.lock"


@contextlib.contextmanager
def _locked(path: Path, name: str) -> Iterator[TextIOWrapper]:
    for _ in range(TRIES):
        with _opened(path) as file:
            if _have(file, path):
                yield file
                return
        time.sleep(PAUSE_SECONDS)
    other = _read(path.read_text() if path.exists() else "", name)
    raise LabError(
        other.said(),
        f"wait until it is over, or end it: Ctrl-C in its terminal, or `kill {other.pid or '?'}`;"
        " `lab status` works meanwhile",
    )


def _opened(path: Path) -> TextIOWrapper:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a+")
    except OSError as error:
        raise LabError(
            f"nothing can be written in {path.parent}: {error.strerror}",
            "lab_state_dir in guest.yml says where the lab's folder lies: mend or change that",
        ) from error


def _have(file: TextIOWrapper, path: Path) -> bool:
    """Lock the file; it must still be the one that stands there: its last holder may have removed it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return path.stat().st_ino == os.fstat(file.fileno()).st_ino
    except (BlockingIOError, FileNotFoundError):
        return False


def _read(text: str, name: str) -> Holder:
    try:
        verb, pid, since = text.rsplit(maxsplit=2)
        return Holder(name, verb, int(pid), since)
    except ValueError:  # it has the lock and has not written yet
        return Holder(name, "?", None, "")
