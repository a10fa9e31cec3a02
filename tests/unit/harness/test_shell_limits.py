"""UNIT: commands that take all there is: processes, memory, disk. The harness lives on and says so."""

import os
import subprocess

import pytest
from loopback import until
from small_disks import small_disk
from test_tools import Gate, make_desk

from harness import tools
from harness.money import Purse
from harness.phases import PHASES
from harness.status import status
from harness.tools import cgroups

BOMB = "bomb() { bomb | bomb & }; bomb; sleep 30"


@pytest.fixture
def desk(tmp_path):
    desk = make_desk(tmp_path, command_memory_fraction=0.05)
    yield desk
    desk.jobs.stop()


def shell(desk, command):
    desk.step += 1
    return tools.use("execute_shell", {"command": command}, desk).text


def processes_of(user):
    said = subprocess.run(
        ["ps", "-u", user, "-o", "stat="], capture_output=True, text=True, check=False
    ).stdout
    return [state for state in said.split() if not state.startswith("Z")]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a command as another user")
def test_a_fork_bomb_is_held_by_its_limit_and_killed_as_a_whole():
    with small_disk("tmpfs", 32) as disk:
        desk = make_desk(disk.folder / "sandbox", tool_user="nobody", command_max_processes=64)
        object.__setattr__(desk.settings, "command_timeout_seconds", 3)
        told = shell(desk, BOMB)
        desk.jobs.stop()
        assert "killed after" in told
        assert "limits here: " in told and "64 processes" in told
        until(lambda: len(processes_of("nobody")) < 30)
        assert "still here" in shell(desk, "echo still here")


def test_a_memory_hog_fails_and_its_result_names_the_limit(desk):
    told = shell(desk, "python3 -c 'x = bytearray(30_000_000_000)'; echo after")
    assert "MemoryError" in told and "after" in told
    assert (
        f"limits here: {desk.settings.command_memory_fraction * total_memory() / 1e9:.1f} GB of memory"
        in told
    )


def total_memory():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_a_missing_cgroup_is_said_once(desk):
    shell(desk, "true")
    shell(desk, "true")
    said = desk.recorder.query("SELECT guard_reason FROM execution_logs WHERE event_type = 'GUARD'")
    assert [reason for (reason,) in said if "no cgroups with limits" in reason] == [said[0][0]]


def test_a_command_and_all_of_them_together_get_a_cgroup_with_limits(desk, tmp_path, monkeypatch):
    """The kernel's cgroup tree is played by a plain folder here."""
    monkeypatch.setattr(cgroups, "own", lambda: tmp_path / "unit")
    (tmp_path / "unit").mkdir()
    shell(desk, "true")
    group = tmp_path / "unit" / "steps" / f"step-{desk.step}"
    memory = str(int(0.05 * total_memory()))
    assert (tmp_path / "unit/harness/cgroup.procs").read_text() == str(os.getpid())
    assert (group / "memory.max").read_text() == (group.parent / "memory.max").read_text() == memory
    assert (group / "pids.max").read_text() == "512"
    assert (group.parent / "pids.max").read_text() == "2048"
    assert (group / "memory.oom.group").read_text() == "1"
    for folder in (group.parent, group.parent.parent):
        assert (folder / "cgroup.subtree_control").read_text() == "+memory +pids"


def test_the_limits_that_a_cgroup_met_stand_in_the_result(desk, tmp_path, monkeypatch):
    monkeypatch.setattr(cgroups, "own", lambda: tmp_path / "unit")
    group = tmp_path / "unit" / "steps" / f"step-{desk.step + 1}"
    group.mkdir(parents=True)
    (group / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 1\noom_kill 3\n")
    (group / "pids.events").write_text("max 12\n")
    told = shell(desk, "echo hi")
    assert "ran out of the memory it may use" in told
    assert "could not start all the processes" in told


def test_a_gigabyte_of_output_ends_well_fills_no_disk_and_can_be_read_at_both_ends(desk):
    told = shell(desk, "echo first; yes middle | head -c 1000000000; echo; echo last")
    assert told.startswith("first\n") and "last\n[exit code 0; of its 1000 MB of output the first 64" in told
    (kept,) = desk.settings.paths.shown_outputs.iterdir()
    assert kept.stat().st_size > 1_000_000_000
    assert kept.stat().st_blocks * 512 < 140_000_000
    hole = tools.use("read_file", {"path": str(kept), "offset": 500_000_000}, desk).text
    after = int(hole.rsplit(" ", 1)[1].rstrip("]"))
    assert "nothing is kept from offset 500000000" in hole
    assert "middle\nmiddle" in tools.use("read_file", {"path": str(kept), "offset": after}, desk).text
    copied = sum(path.stat().st_size for path in desk.settings.paths.outputs.iterdir())
    assert copied < 5_000_000


def test_output_that_awaits_its_review_never_lies_on_the_records_disk_nor_under_a_name(desk):
    desk.inspector = Gate("ALLOW", "BLOCK")
    command = (
        f": curl; yes secret | head -c 20000000; ls -sk {desk.settings.paths.outputs} > workspace-list; "
        f"ls -A {desk.settings.paths.tmp} {desk.settings.paths.shown_outputs} >> workspace-list"
    )
    shell(desk, command)
    listed = (desk.settings.paths.workspace / "workspace-list").read_text()
    assert "step-" not in listed
    (copy,) = desk.settings.paths.outputs.iterdir()
    assert copy.stat().st_size < 4_001_000


def test_a_long_output_is_cut_between_characters(desk):
    for size in (3000, 2_000_000):
        told = shell(desk, f"python3 -c 'print(\"\\u00e4\\u20ac\\U0001f600\" * {size})'")
        assert "\ufffd" not in told
        assert "left out here" in told


def test_what_runs_in_the_background_stands_in_the_status_until_it_ends(desk):
    shell(desk, "nohup sleep 60 > /dev/null 2>&1 &")
    step = desk.step
    shell(desk, "echo nothing stays")
    told = status(desk.recorder, PHASES[1], desk.clock, Purse(1, 1, 1, 1), False, False, "", desk.jobs.told())
    assert f"Still running in the background: step-{step} (nohup sleep 60" in told
    assert "nothing stays" not in told
    desk.jobs.stop()
    until(lambda: desk.jobs.told() == "")


def test_a_background_job_that_writes_on_is_kept_within_bounds_too(desk, monkeypatch):
    monkeypatch.setattr("harness.tools.output.HEAD", 100_000)
    monkeypatch.setattr("harness.tools.output.TAIL", 100_000)
    shell(desk, "(sleep 0.2; head -c 30000000 /dev/urandom; sleep 60) &")
    (kept,) = desk.settings.paths.shown_outputs.iterdir()
    until(lambda: kept.stat().st_size >= 30_000_000)
    desk.jobs.told()
    assert kept.stat().st_size == 30_000_000
    assert kept.stat().st_blocks * 512 < 1_000_000
