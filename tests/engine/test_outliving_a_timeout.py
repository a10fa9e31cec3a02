"""ENGINE: twelve ways to hold the output or outlive the time-out; each costs half of it more at most."""

import os
import signal
import threading
import time

import pytest
from harness_run import run_settings
from scripted_gateway import TOKEN

from harness import tools
from harness.__main__ import _make_folders
from harness.clock import Clock
from harness.phases import PHASES
from harness.settings import from_dict
from harness.telemetry.recorder import Recorder
from harness.tools.base import Desk

TIMEOUT = 8.0  # half of it is what a busy disk may take of a process that it holds
# In all of them the command itself does not end, or ends at once and leaves something that holds its output.
WAYS = {
    "ignores TERM": "trap '' TERM INT HUP; sleep 60; sleep 60",
    "a child in a session of its own, output open": "setsid sleep 60 & sleep 60",
    "a double fork": "( ( sleep 60 & ) & ); sleep 60",
    "nohup, and a wait for it": "nohup sleep 60 > /dev/null 2>&1 & wait",
    # Not $$: in a background list that is the shell which has the list, and whether it ends first is luck.
    "stops itself": "kill -STOP $BASHPID; sleep 60",
    "a stopped child": "sleep 60 & kill -STOP $!; wait",
    "writes for ever": "yes outliving",
    "children that write for ever": "yes one & yes two & wait",
    "a pipe whose writer lives on": "(setsid sleep 60 &) | cat",
    "stdout handed on through other descriptors": "exec 7>&1 8>&2; setsid sleep 60 >&7 2>&8 & sleep 60",
    "starts itself anew": "f() { trap 'f' EXIT TERM; sleep 1; f; }; f",
    "a daemon that python makes": (
        "python3 -c 'import os,time\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0: time.sleep(60)\n"
        "time.sleep(60)'"
    ),
}


@pytest.fixture
def desk(tmp_path):
    wanted = from_dict(run_settings(tmp_path, command_timeout_seconds=TIMEOUT))
    _make_folders(wanted)
    clock = Clock(3600, 0.1)
    recorder = Recorder(wanted.paths.primary_db, wanted.paths.mirror_db, TOKEN, clock.elapsed)
    desk = Desk(wanted, recorder, clock, None, threading.Event(), PHASES[1], step=1, call=1)
    yield desk
    desk.jobs.stop()
    _end_what_lives(tmp_path)


def _end_what_lives(folder):
    """Without cgroups a child that left its session is out of the harness's reach; it works in our folder."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/cwd").startswith(str(folder)):
                os.kill(int(pid), signal.SIGKILL)
        except OSError:
            continue


@pytest.mark.parametrize("way", WAYS)
def test_no_command_outlives_its_time_out_by_half(desk, way):
    began = time.monotonic()
    done = tools.use("execute_shell", {"command": WAYS[way]}, desk)
    assert time.monotonic() - began <= 1.5 * TIMEOUT
    assert "killed after 8 s" in done.text


@pytest.mark.parametrize("way", WAYS)
def test_no_command_that_ended_is_waited_for_because_of_what_it_left(desk, way):
    began = time.monotonic()
    # The word first: behind what a child writes for ever it may fall into the middle, which is left out.
    done = tools.use("execute_shell", {"command": f"echo ended; {{ {WAYS[way]}\n}} &"}, desk)
    assert time.monotonic() - began <= 1.5 * TIMEOUT
    assert "ended" in done.text and "exit code 0" in done.text
