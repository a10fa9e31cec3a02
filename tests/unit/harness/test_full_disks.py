"""UNIT: a workspace without space or inodes ends in a report; the record lies where nothing starves it."""

import time

import pytest
from diligent import REPORT, phase_of
from harness_run import run_session, run_settings
from scripted_gateway import ScriptedGateway, call, say
from small_disks import small_disk

from harness import ballast
from harness.machine import disk_percent

FILL_SPACE = "cat /dev/zero > fill 2>/dev/null; ls -s fill"
FILL_INODES = "for n in $(seq 3000); do : > tools/f$n || break; done 2>/dev/null; ls tools | wc -l"


def worker(command):
    count = [0]

    def reply(body):
        time.sleep(0.02)
        if phase_of(body) == "FINAL_REPORT":
            count[0] += 1
            return REPORT if count[0] == 1 else say("The report stands.")
        return call("execute_shell", command=command)

    return reply


@pytest.fixture
def apart(tmp_path):
    """A sandbox on a small disk, with telemetry and mirror on another, as in the guest."""
    with small_disk("tmpfs", 48) as disk:
        disk.remount("nr_inodes=2000")
        sandbox = disk.folder / "sandbox"
        sandbox.mkdir()
        for name in ("telemetry", "mirror"):
            (tmp_path / name).mkdir()
            (sandbox / name).symlink_to(tmp_path / name)
        yield sandbox


@pytest.mark.parametrize("command", [FILL_SPACE, FILL_INODES], ids=["space", "inodes"])
def test_a_full_workspace_jumps_to_the_report_for_which_the_ballast_is_freed(apart, command):
    with ScriptedGateway(worker=worker(command)) as gateway:
        run = run_session(run_settings(apart, gateway.url, minutes=5, disk_limit_percent=92))
    assert run.summary["stop_reason"] == "disk limit reached"
    assert run.summary["final_report_by"] == "worker"
    assert (run.notes / "final_report_v1.md").read_text().startswith("# Final")
    said = run.events("GUARD", "guard_reason")
    assert any("of the disk's space or of its inodes" in reason for reason in said)
    assert any("ballast was freed" in reason for reason in said)
    assert run.summary["mirror"] == "ok"
    assert run.rows("PRAGMA integrity_check") == [("ok",)]


def test_the_share_that_counts_is_the_larger_of_space_and_inodes():
    with small_disk("tmpfs", 16) as disk:
        disk.remount("nr_inodes=100")
        assert disk_percent(disk.folder) < 10
        for number in range(80):
            (disk.folder / f"f{number}").touch()
        assert 75 < disk_percent(disk.folder) < 90
        (disk.folder / "big").write_bytes(b"x" * 15_500_000)
        assert disk_percent(disk.folder) > 90


def test_the_ballast_is_a_small_share_laid_down_once_and_freed_whole():
    with small_disk("tmpfs", 16) as disk:
        assert ballast.place(disk.folder) and ballast.place(disk.folder)
        files = list((disk.folder / ballast.NAME).iterdir())
        assert len(files) == ballast.FILES
        assert 500_000 < sum(file.stat().st_blocks * 512 for file in files) < 1_000_000
        assert ballast.free(disk.folder)
        assert not ballast.free(disk.folder)
        assert list(disk.folder.iterdir()) == []


def test_a_link_in_the_ballasts_place_is_left_alone(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "kept").touch()
    (tmp_path / ballast.NAME).symlink_to(tmp_path / "other")
    assert not ballast.free(tmp_path)
    assert (tmp_path / "other" / "kept").exists()
