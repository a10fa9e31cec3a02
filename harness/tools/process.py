"""GUEST: runs one command: own session, own cgroup, output to a file, killed at its time limit.

It returns when the command's own process ends, even if a background child still holds the output open.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from harness.text import clip, decode
from harness.tools import cgroups
from harness.tools.base import Desk, groups_of

OUTPUT_CAP = 256_000_000  # bytes of output at which a command is stopped
WHOLE = 1_000_000  # bytes up to which an output is read whole; beyond, its two ends
TICK_MS = 100
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# The harness is spared when memory runs out, and its children inherit that: a command gives it back.
_BEGIN = '{ echo 500 > /proc/$$/oom_score_adj; } 2>/dev/null; exec /bin/bash --noprofile --norc -c "$0"'
# The command starts once its cgroup holds it: fd $1 closes when the harness has moved it.
_GATE = 'read -r -u "$1" _; eval "exec $1<&-"; ' + _BEGIN


@dataclass(frozen=True)
class Finished:
    """output: cleaned and cut text. ending: how the command ended, such as 'exit code 0'."""

    output: str
    ending: str

    def told(self) -> str:
        return (
            f"{self.output.rstrip()}\n[{self.ending}]"
            if self.output.strip()
            else f"[no output, {self.ending}]"
        )


def run_command(command: str, desk: Desk, shown: bool) -> Finished:
    """Run in the workspace as the tool user. shown: the whole output may lie where the Worker can read it."""
    limit = min(desk.settings.command_timeout_seconds, desk.clock.for_work())
    target = _output_file(desk, _name(desk), shown)
    with open(target, "wb") as sink:
        try:
            ending = (desk.world.command or _really)(command, desk, sink.fileno(), limit)
        except OSError as error:
            return Finished("", f"could not be started: {error.strerror or error}")
    text = _read(target, desk.settings.output_limit_chars, str(target) if shown else "")
    (desk.kept.add if shown else desk.kept.settle)(target)
    return Finished(text, ending)


def _really(command: str, desk: Desk, sink: int, limit: float) -> str:
    group = cgroups.create(_name(desk))
    process = _start(command, desk, sink, group)
    ending = _wait(process, limit, sink, group, desk)
    cgroups.tidy()
    return ending


def _name(desk: Desk) -> str:
    return f"step-{desk.step}" + (f"-{desk.call}" if desk.call > 1 else "")


def _output_file(desk: Desk, name: str, shown: bool) -> Path:
    folder = desk.settings.paths.shown_outputs if shown else desk.settings.paths.outputs
    folder.mkdir(parents=True, exist_ok=True, mode=0o755 if shown else 0o700)
    return folder / f"{name}.txt"


def _start(command: str, desk: Desk, sink: int, group: Path | None) -> subprocess.Popen:
    user = desk.settings.tool_user
    who = {}
    if user is not None:
        uid, gid = desk.owner() or (0, 0)
        who = {"user": uid, "group": gid, "extra_groups": groups_of(user)}
    common = {
        "cwd": desk.settings.paths.workspace,
        "env": environment(desk),
        "stdin": subprocess.DEVNULL,
        "stdout": sink,
        "stderr": subprocess.STDOUT,
        "start_new_session": True,
        **who,
    }
    if group is None:
        process = subprocess.Popen(["/bin/bash", "--noprofile", "--norc", "-c", _BEGIN, command], **common)
    else:
        process = _start_gated(command, common, group)
    desk.started[:] = [*filter(_is_alive, desk.started), process.pid]
    return process


def _is_alive(session: int) -> bool:
    """Whether a command left something running. Numbers are used again, so the dead are forgotten at once."""
    try:
        os.killpg(session, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _start_gated(command: str, common: dict, group: Path) -> subprocess.Popen:
    gate, opener = os.pipe()
    try:
        line = ["/bin/bash", "--noprofile", "--norc", "-c", _GATE, command, str(gate)]
        process = subprocess.Popen(line, pass_fds=(gate,), **common)
        cgroups.move(group, process.pid)
        return process
    finally:
        os.close(opener)
        os.close(gate)


def environment(desk: Desk) -> dict[str, str]:
    """All that a command gets to know; nothing of ours is in it."""
    user = desk.settings.tool_user
    home = os.path.expanduser(f"~{user}") if user else str(desk.settings.paths.workspace)
    return {
        "HOME": home,
        "USER": user or "worker",
        "LOGNAME": user or "worker",
        "SHELL": "/bin/bash",
        "PATH": PATH,
        "TMPDIR": str(desk.settings.paths.tmp),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "PAGER": "cat",
        "DEBIAN_FRONTEND": "noninteractive",
        "NEEDRESTART_MODE": "a",
        "GIT_TERMINAL_PROMPT": "0",
        "PYTHONUNBUFFERED": "1",
        "PIP_NO_INPUT": "1",
    }


def _wait(process: subprocess.Popen, limit: float, sink: int, group: Path | None, desk: Desk) -> str:
    """Wait for the process, not for the end of its output. Returns how it ended."""
    ends = time.monotonic() + limit
    poller = select.poll()
    handle = os.pidfd_open(process.pid)
    poller.register(handle, select.POLLIN)
    try:
        while not poller.poll(TICK_MS):
            if reason := _too_much(ends, limit, sink, desk):
                _kill(process, group)
                return reason
    finally:
        os.close(handle)
    code = process.wait()
    return f"exit code {code}" if code >= 0 else f"ended by signal {-code}"


def _too_much(ends: float, limit: float, sink: int, desk: Desk) -> str:
    if desk.stop.is_set():
        return "interrupted: the run is being ended"
    if time.monotonic() >= ends:
        return f"killed after {limit:.0f} s"
    if os.fstat(sink).st_size > OUTPUT_CAP:
        return f"killed: it wrote more than {OUTPUT_CAP // 1_000_000} MB of output"
    return ""


def _kill(process: subprocess.Popen, group: Path | None) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    if group is not None:
        cgroups.kill(group)
    process.wait()


def _read(path: Path, limit: int, where: str) -> str:
    size = path.stat().st_size
    with open(path, "rb") as file:
        if size <= WHOLE:
            return clip(decode(file.read()), limit, where)
        head = file.read(limit * 4)
        file.seek(-limit * 4, os.SEEK_END)
        tail = file.read()
    first, last = decode(head)[: limit * 2 // 3], decode(tail)[-limit // 3 :]
    rest = f"; the whole text is in {where}" if where else ""
    missing = size - len(first.encode()) - len(last.encode())
    return f"{first}\n[about {missing} characters left out here{rest}]\n{last}"


def stop_children(started: list[int]) -> None:
    """At the end of a run: every command's session and cgroup, background jobs included."""
    for pid in started:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    cgroups.kill_all()
