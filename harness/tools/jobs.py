"""GUEST: what commands left running: for the status message, and to be stopped at the end of the run."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from harness.text import clean
from harness.tools import cgroups
from harness.tools.output import Output

LISTED = 6
KILLING_SECONDS = 3.0


@dataclass(frozen=True)
class Job:
    """name: step-N, of its cgroup and its output. session: its pid. output: None if none may read it."""

    name: str
    session: int
    command: str
    output: Path | None


@dataclass
class Jobs:
    """Every command whose processes may still live. Pids are used again: each look forgets the dead."""

    known: list[Job] = field(default_factory=list)

    def began(self, name: str, session: int, command: str, output: Path | None) -> None:
        self.known = [*filter(is_alive, self.known), Job(name, session, command, output)]

    def told(self) -> str:
        """The jobs that run, for the status message; '' if none does. Bounds their outputs."""
        self.known = [job for job in self.known if is_alive(job)]
        for job in self.known:
            _bound(job)
        named = [f"{job.name} ({' '.join(clean(job.command).split())[:60]})" for job in self.known[-LISTED:]]
        more = f" and {len(self.known) - LISTED} older" if len(self.known) > LISTED else ""
        return f"Still running in the background: {', '.join(named)}{more}." if named else ""

    def stop(self) -> None:
        """Every command's session and cgroup."""
        for job in self.known:
            end_session(job.session)
        cgroups.kill_all()


def end_session(session: int) -> None:
    """Kill until nothing of it lives: what a fork bomb forks meanwhile outlives a single kill."""
    ends = time.monotonic() + KILLING_SECONDS
    while _signal(session, signal.SIGKILL) and not _only_zombies(session) and time.monotonic() < ends:
        time.sleep(0.01)


def is_alive(job: Job) -> bool:
    """By its cgroup; without one by its session, which a child with a session of its own has left."""
    found = cgroups.alive(job.name)
    return _signal(job.session, 0) and not _only_zombies(job.session) if found is None else found


def _signal(session: int, number: int) -> bool:
    try:
        os.killpg(session, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _only_zombies(session: int) -> bool:
    """Nobody may have waited for them yet."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = stat.read_bytes().rpartition(b")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(group) == session and state not in (b"Z", b"X"):
            return False
    return True


def _bound(job: Job) -> None:
    if job.output is None:
        return
    try:
        handle = os.open(job.output, os.O_WRONLY | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        Output(handle, job.output, "").bound()
    finally:
        os.close(handle)
