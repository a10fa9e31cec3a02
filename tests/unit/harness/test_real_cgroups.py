"""UNIT: commands in cgroups of the kernel's, where a test may make some; limits where v2 has controllers."""

import os
import time
from pathlib import Path

import pytest
from test_tools import make_desk

from harness import tools
from harness.tools import cgroups


def mount_of_v2():
    for line in Path("/proc/self/mounts").read_text().splitlines():
        if line.split()[2] == "cgroup2":
            return Path(line.split()[1])
    return None


@pytest.fixture
def unit(monkeypatch):
    """A group of its own below the root, as systemd delegates one; this process leaves it again."""
    mount = mount_of_v2()
    home = Path("/proc/self/cgroup").read_text().split("0::/")[-1].strip() if mount else ""
    unit = (mount or Path("/nowhere")) / f"lab-test-{os.getpid()}"
    try:
        unit.mkdir()
    except OSError as error:
        pytest.skip(f"needs root and cgroup v2: {error}")
    monkeypatch.setattr(cgroups, "own", lambda: unit)
    yield unit
    (mount / home / "cgroup.procs").write_text(str(os.getpid()))
    (unit / "cgroup.kill").write_text("1")
    for _ in range(50):
        try:
            for folder in [*unit.glob("steps/*/"), unit / "steps", unit / "harness", unit]:
                if folder.is_dir():
                    folder.rmdir()
            break
        except OSError:
            time.sleep(0.1)


@pytest.fixture
def desk(tmp_path, unit):
    return make_desk(tmp_path, command_max_processes=40, command_memory_fraction=0.05)


def shell(desk, command):
    desk.step += 1
    return tools.use("execute_shell", {"command": command}, desk).text


def pid_in(desk, name):
    return int((desk.settings.paths.workspace / name).read_text())


def is_gone(pid):
    ends = time.monotonic() + 30
    while time.monotonic() < ends:
        stat = Path(f"/proc/{pid}/stat")
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX":
            return True
        time.sleep(0.05)
    return False


def test_the_harness_and_each_command_are_in_groups_of_their_own(desk, unit):
    told = shell(desk, "cat /proc/self/cgroup")
    assert f"{unit.name}/steps/step-{desk.step}" in told
    assert str(os.getpid()) in (unit / "harness" / "cgroup.procs").read_text().split()
    assert (unit / "cgroup.procs").read_text() == ""


def test_a_time_out_kills_also_what_made_a_session_of_its_own(desk):
    object.__setattr__(desk.settings, "command_timeout_seconds", 3)
    assert "killed after" in shell(desk, "setsid sh -c 'echo $$ > escaped; exec sleep 60' & sleep 60")
    assert is_gone(pid_in(desk, "escaped"))


def test_a_job_in_a_session_of_its_own_is_listed_and_stopped_at_the_end(desk, unit):
    escape = "setsid sh -c 'echo $$ > escaped; exec sleep 60' > /dev/null 2>&1"
    shell(desk, f"{escape} & until [ -s escaped ]; do sleep 0.05; done")
    job = f"step-{desk.step}"
    shell(desk, "true")
    assert f"background: {job} (setsid" in desk.jobs.told()
    assert [folder.name for folder in (unit / "steps").glob("step-*")] == [job]
    desk.jobs.stop()
    assert is_gone(pid_in(desk, "escaped"))
    assert desk.jobs.told() == ""


@pytest.fixture
def limited(unit):
    if not {"memory", "pids"} <= set((unit / "cgroup.controllers").read_text().split()):
        pytest.skip("cgroup v2 has no controllers here")


def test_a_fork_bomb_of_root_is_held_and_its_result_says_so(limited, desk):
    object.__setattr__(desk.settings, "command_timeout_seconds", 2)
    assert "could not start all the processes" in shell(desk, "bomb() { bomb | bomb & }; bomb; sleep 30")
    assert "still here" in shell(desk, "echo still here")


def test_a_memory_hog_is_killed_as_a_whole_and_its_result_says_so(limited, desk):
    told = shell(desk, "sleep 60 & head -c 20000000000 /dev/zero | tail -c 19000000000 | wc -c")
    assert "ran out of the memory it may use" in told
    assert desk.jobs.told() == ""
