"""GUEST: runs one command: own session, own cgroup, output to a file, killed at its time limit.

It returns when the command's own process ends, even if a background child still holds the output open.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from harness.settings import Settings
from harness.tools import cgroups
from harness.tools.base import Desk, groups_of
from harness.tools.jobs import end_session
from harness.tools.output import Output, held_output, shown_output
from harness.tools.read_only_mounts import NotReadOnly, start_in_read_only

TICK_MS = 100
NO_GROUPS = (
    "there are no cgroups with limits here: a command's limits are ulimit's, and root's processes have none"
)
_SHORT = re.compile("Resource temporarily unavailable|Cannot allocate memory|MemoryError")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# The harness is spared when memory runs out, and its children inherit that: a command gives it back.
_BEGIN = '{ echo 500 > /proc/$$/oom_score_adj; } 2>/dev/null; exec /bin/bash --noprofile --norc -c "$0"'
# The command starts once its cgroup holds it: fd $1 closes when the harness has moved it.
_GATE = 'read -r -u "$1" _; eval "exec $1<&-"; '
_BASH = ("/bin/bash", "--noprofile", "--norc", "-c")


@dataclass(frozen=True)
class Finished:
    """output: cleaned and cut text. ending: how the command ended, such as 'exit code 0'. missing: of the
    output, a clause behind that.
    """

    output: str
    ending: str
    missing: str = ""

    def told(self) -> str:
        return (
            f"{self.output.rstrip()}\n[{self.ending}{self.missing}]"
            if self.output.strip()
            else f"[no output, {self.ending}{self.missing}]"
        )


def run_command(command: str, desk: Desk, shown: bool, read_only: bool = False) -> Finished:
    """Run in the workspace as the tool user.

    shown: the whole output may lie where the Worker can read it. read_only: no file system can be written.
    """
    limit, paths = min(desk.settings.command_timeout_seconds, desk.clock.for_work()), desk.settings.paths
    name = step_name(desk)
    opened = shown_output(paths.shown_outputs / f"{name}.txt") if shown else held_output(paths.tmp)
    try:
        with opened as output:
            if desk.world.command:
                ending = desk.world.command(command, desk, output.sink, limit)
            else:
                ending = _really(command, desk, output, limit, read_only)
            text = output.text(desk.settings.output_limit_chars)
            desk.kept.add(output.path, f"{name}.txt")
            return Finished(text, ending, output.note())
    except OSError as error:  # no room for its output, or no right to begin it
        return Finished("", f"could not be started: {error.strerror or error}")


def step_name(desk: Desk) -> str:
    return f"step-{desk.step}" + (f"-{desk.call}" if desk.call > 1 else "")


def _really(command: str, desk: Desk, output: Output, limit: float, read_only: bool) -> str:
    group = cgroups.create(step_name(desk), limits_of(desk.settings))
    is_limited = cgroups.is_limited(group)
    if not is_limited:
        desk.say_once(NO_GROUPS)
    process = _start_where(command, desk, output.sink, group, read_only)
    desk.jobs.began(step_name(desk), process.pid, command, output.path if output.where else None)
    ending = _wait(process, limit, output, group, desk)
    output.bound()
    met = cgroups.met(group) if group and is_limited else _met_without_groups(output, desk.settings)
    cgroups.tidy()
    return "; ".join([ending, *met])


def limits_of(settings: Settings) -> cgroups.Limits:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return cgroups.Limits(int(settings.command_memory_fraction * memory), settings.command_max_processes)


def _met_without_groups(output: Output, settings: Settings) -> list[str]:
    """ulimit tells nobody that it struck: the command's own words are all there is."""
    if _SHORT.search(output.text(4000)):
        return [f"limits here: {limits_of(settings)}, by ulimit: for each process, and for all of the user's"]
    return []


def _start_where(
    command: str, desk: Desk, sink: int, group: Path | None, read_only: bool
) -> subprocess.Popen:
    if read_only:
        paths = desk.settings.paths
        try:
            return start_in_read_only(
                lambda: _start(command, desk, sink, group), [paths.workspace, paths.sandbox, paths.tmp]
            )
        except NotReadOnly as reason:
            desk.say_once(f"the reading shell has its rules only, no read-only mounts: {reason}")
    return _start(command, desk, sink, group)


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
    begin = _BEGIN if cgroups.is_limited(group) else _ulimit(limits_of(desk.settings)) + _BEGIN
    if group is None:
        return subprocess.Popen([*_BASH, begin, command], **common)
    return _start_gated([*_BASH, _GATE + begin, command], common, group)


def _ulimit(limits: cgroups.Limits) -> str:
    return f"ulimit -u {limits.processes} -d {limits.memory // 1024} 2>/dev/null; "


def _start_gated(line: list[str], common: dict, group: Path) -> subprocess.Popen:
    gate, opener = os.pipe()
    try:
        process = subprocess.Popen([*line, str(gate)], pass_fds=(gate,), **common)
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


def _wait(process: subprocess.Popen, limit: float, output: Output, group: Path | None, desk: Desk) -> str:
    """Wait for the process, not for the end of its output. Returns how it ended."""
    ends = time.monotonic() + limit
    poller = select.poll()
    handle = os.pidfd_open(process.pid)
    poller.register(handle, select.POLLIN)
    try:
        while not poller.poll(TICK_MS):
            if reason := _too_much(ends, limit, output, desk):
                _kill(process, group)
                return reason
    finally:
        os.close(handle)
    code = process.wait()
    return f"exit code {code}" if code >= 0 else f"ended by signal {-code}"


def _too_much(ends: float, limit: float, output: Output, desk: Desk) -> str:
    if desk.stop.is_set():
        return "interrupted: the run is being ended"
    if desk.patience() <= 0:
        return "killed: the session was asked to finish"
    if time.monotonic() >= ends:
        return f"killed after {limit:.0f} s"
    return output.bound()


def _kill(process: subprocess.Popen, group: Path | None) -> None:
    end_session(process.pid)
    if group is not None:
        cgroups.kill(group)
    process.wait()
