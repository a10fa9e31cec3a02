"""TESTS: one command at a time on a lab, and a state file that two writers and a crash leave whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from labkit import lock, state
from labkit.config import REPO
from labkit.errors import NOT_READY, LabError

HOLD = "import sys, pathlib, time; from labkit import lock\n" + (
    "with lock.hold(pathlib.Path(sys.argv[1]), 'unit', 'up'): print('held', flush=True); time.sleep(600)"
)


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of the lab `unit`."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=REPO
    )
    assert child.stdout.readline() == "held\n"
    yield child
    child.kill()
    child.wait()


def test_a_second_command_is_refused_at_once_and_told_who_is_at_work(tmp_path, holder):
    with pytest.raises(LabError) as caught, lock.hold(tmp_path, "unit", "revert"):
        pass
    assert caught.value.code == NOT_READY
    assert "`lab up`" in caught.value.message and f"process {holder.pid}" in caught.value.message
    assert "`lab status` works" in caught.value.hint


def test_another_lab_of_the_host_is_not_kept_waiting(tmp_path, holder):
    with lock.hold(tmp_path, "other", "up"):
        assert holder.poll() is None


def test_a_killed_holder_leaves_no_lock_behind(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with lock.hold(tmp_path, "unit", "revert"):
        assert (tmp_path / ".unit.lock").read_text().split()[:2] == ["revert", str(os.getpid())]


def test_a_verb_with_an_option_is_named_whole(tmp_path):
    again = lock.hold(tmp_path, "unit", "up")
    with lock.hold(tmp_path, "unit", "run --resume"), pytest.raises(LabError) as caught:
        again.__enter__()
    assert "`lab run --resume` (process" in caught.value.message
    assert f"`kill {os.getpid()}`" in caught.value.hint


def test_who_is_at_work_can_be_asked_without_making_or_keeping_anything(tmp_path, holder):
    found = lock.holder(tmp_path, "unit")
    assert (found.verb, found.pid) == ("up", holder.pid)
    assert lock.holder(tmp_path, "other") is None
    assert [path.name for path in tmp_path.iterdir()] == [".unit.lock"]
    holder.kill()
    holder.wait()
    assert lock.holder(tmp_path, "unit") is None


def test_a_lab_that_was_never_made_leaves_no_lock_and_no_folder_behind(tmp_path):
    with pytest.raises(LabError, match="no"), lock.hold(tmp_path / "deep/state", "unit", "revert"):
        raise LabError("no snapshot")
    assert list(tmp_path.iterdir()) == []


def test_the_lock_of_a_lab_that_exists_stays(tmp_path):
    (tmp_path / "unit").mkdir()
    with lock.hold(tmp_path, "unit", "revert"):
        pass
    assert (tmp_path / ".unit.lock").is_file()


TAKE_OFTEN = """
import pathlib, sys, time
from labkit import lock
from labkit.errors import LabError
folder, count = pathlib.Path(sys.argv[1]), 0
while count < 20:
    try:
        with lock.hold(folder, "unit", "up"):
            (folder / "inside").touch(exist_ok=False)  # fails if another process is inside as well
            time.sleep(0.001)
            (folder / "inside").unlink()
            count += 1
    except LabError:
        pass
"""


def test_a_lock_file_that_is_removed_by_its_holder_still_lets_in_one_at_a_time(tmp_path):
    command = [sys.executable, "-c", TAKE_OFTEN, str(tmp_path)]
    takers = [subprocess.Popen(command, cwd=REPO, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    assert [(taker.communicate(timeout=110)[1], taker.returncode) for taker in takers] == [("", 0)] * 3


def test_the_lock_does_not_lie_in_the_folder_that_down_removes(tmp_path):
    with lock.hold(tmp_path, "unit", "down"):
        assert [path.name for path in tmp_path.iterdir()] == [".unit.lock"]


def test_changes_from_several_writers_at_once_all_stay(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: state.update(tmp_path, **{f"key{number}": number}), range(24)))
    assert state.read(tmp_path) == {f"key{number}": number for number in range(24)}


def test_none_takes_a_key_away(tmp_path):
    state.update(tmp_path, run="20261129-201202-b0dd88", dirty=True)
    assert state.update(tmp_path, run=None) == {"dirty": True}


@pytest.mark.parametrize("text", ["{half", "[]", "\x00\x01"])
def test_a_damaged_state_file_is_named_with_the_way_out(tmp_path, text):
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(LabError, match=r"state\.json is damaged") as caught:
        state.read(tmp_path)
    assert "lab down --discard" in caught.value.hint


def test_the_way_out_of_a_damaged_state_file_keeps_it(tmp_path):
    (tmp_path / "state.json").write_text("{half")
    assert state.set_damaged_aside(tmp_path)
    assert state.read(tmp_path) == {}
    assert (tmp_path / "state.json.damaged").read_text() == "{half"


def test_a_sound_state_file_is_not_set_aside(tmp_path):
    state.update(tmp_path, dirty=True)
    assert not state.set_damaged_aside(tmp_path)
    assert state.read(tmp_path) == {"dirty": True}
