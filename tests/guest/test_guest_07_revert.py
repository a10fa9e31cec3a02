"""HOST: `lab revert` and its receipt: what it proves, and what it refuses to call proven."""

import datetime
import json
import os

import pytest

from labkit import snapshot
from labkit.errors import EVIDENCE

CHECKS = {"clock", "marker", "new marker", "address", "host key", "frozen files", "overlays", "domain XML"}
LEFT_BEHIND = (
    "/root",
    "/sandbox/workspace/notes",
    "/sandbox/telemetry",
    "/sandbox/mirror",
    "/sandbox/backups",
)


def test_a_revert_proves_itself_and_leaves_the_guest_off(lab, built):
    receipt = lab.lab("revert", "--json").json
    assert receipt["holds"] is True and receipt["mode"] == "resumed" and receipt["broken"] == []
    assert set(receipt["checks"]) == CHECKS
    known = lab.lab("status", "--json").json
    assert (known["guest"], known["dirty"], known["run"]) == ("off", False, None)


def test_a_second_revert_finds_the_marker_of_the_first_gone(lab, built):
    before = json.loads((lab.config.dir / "state.json").read_text())["marker"]
    done = lab.lab("revert")
    assert "all 8 checks hold" in done.out
    receipt = json.loads((lab.config.dir / "receipt.json").read_text())
    assert before in receipt["checks"]["marker"]["detail"] and receipt["checks"]["marker"]["holds"]


@pytest.fixture(scope="module")
def twice(lab, built):
    """Two resumes from the same set, looked into; between them files are left on every file system."""
    look = (
        "cat /proc/sys/kernel/random/boot_id; od -An -N32 -tx1 /dev/urandom | tr -d ' \\n'; echo;"
        " stat -c %Y /run/sshd.pid;"
        " ls -d " + " ".join(f"{folder}/left-behind" for folder in LEFT_BEHIND) + " 2>/dev/null"
    )
    seen = []
    for _ in range(2):
        receipt = lab.resume()
        seen.append((receipt, lab.ssh(look, code=None).splitlines()))
        lab.ssh(" && ".join(f"echo x > {folder}/left-behind && sync -f {folder}" for folder in LEFT_BEHIND))
    yield seen
    snapshot.switch_off(lab.place)


def test_what_was_written_on_either_disk_is_gone_after_the_next_revert(twice):
    assert [lines[3:] for _, lines in twice] == [[], []]


def test_two_resumes_from_one_memory_image_draw_different_random_numbers(twice):
    (_, first), (_, second) = twice
    assert first[0] == second[0], "both resume the same boot"
    assert len(first[1]) == 64 and first[1] != second[1]


def test_sshd_was_started_after_the_resume(twice):
    for receipt, lines in twice:
        assert int(lines[2]) >= datetime.datetime.fromisoformat(receipt.at).timestamp()


def test_sshd_can_be_started_again_in_a_resumed_guest(lab, twice):
    lab.ssh("systemctl restart ssh; systemctl is-active ssh")
    assert lab.ssh("cat /run/sshd.pid; pgrep -c lab-resume || true").split()[1] == "0"


def test_the_clock_is_right_although_the_snapshot_is_old(twice, built):
    for receipt, _ in twice:
        assert receipt.at > built["snapshot"]["taken_at"]
        assert receipt.checks["clock"]["holds"] is True


def test_a_frozen_disk_that_changed_is_named_and_the_revert_is_not_proven(lab, built):
    disk = lab.config.set_dir / "data.qcow2"
    size = disk.stat().st_size
    try:
        with disk.open("ab") as file:
            file.write(b"x")
        done = lab.lab("revert", code=EVIDENCE)
    finally:
        os.truncate(disk, size)
    assert "is not proven" in done.err and "data.qcow2" in done.err
    assert lab.lab("status", "--json").json["guest"] == "off"
    assert lab.lab("revert", "--json").json["holds"] is True


def test_after_another_qemu_the_guest_boots_cold_from_the_frozen_disks_and_the_receipt_says_so(lab, built):
    path = lab.config.set_dir / "manifest.json"
    was = path.read_text()
    found = json.loads(was)
    try:
        path.write_text(json.dumps({**found, "versions": {**found["versions"], "qemu": "0.1.0"}}))
        receipt = lab.lab("revert", "--json").json
    finally:
        path.write_text(was)
    assert receipt["mode"] == "cold boot" and "0.1.0" in receipt["reason"]
    assert receipt["holds"] is True and set(receipt["checks"]) == CHECKS
