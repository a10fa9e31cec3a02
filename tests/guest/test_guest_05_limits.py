"""HOST: in the guest a command's cgroup holds a fork bomb and a memory hog of root's; the next one runs."""

import json

import guest_lab
import pytest

UNIT = "systemd-run --quiet --pipe --wait --slice=lab.slice --property=Delegate=yes"


@pytest.fixture(scope="module")
def tried(lab, collected):
    command = f"{UNIT} python3 - /opt/lab-harness"
    return json.loads(lab.ssh(command, stdin=guest_lab.SCRIPTS / "limits.py", seconds=300))


def test_the_guest_hands_its_limits_to_each_command(tried):
    assert [name for name, found in tried.items() if not found["limited"]] == []


def test_a_fork_bomb_of_root_is_held_and_ended_as_a_whole(tried):
    assert "it could not start all the processes it wanted" in tried["bomb"]["met"]
    assert tried["bomb"]["left"] is False


def test_a_memory_hog_of_root_is_killed_and_says_why(tried):
    assert "it ran out of the memory it may use and was killed" in tried["hog"]["met"]
    assert tried["hog"]["left"] is False


def test_what_comes_after_them_runs(tried):
    assert tried["honest"] == tried["honest"] | {"said": "still here", "met": [], "left": False}
