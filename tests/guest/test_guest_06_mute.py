"""HOST: guests that run and can't be asked (sshd broken, system disk full): their runs come off the disks."""

import json
import socket
import sqlite3
import time
from pathlib import Path

import guest_lab
import pytest

pytestmark = guest_lab.only_in_soak("three minutes each")

# Root in the guest does it; what the host then says.
FAULTS = {
    "sshd broken": (
        "systemctl mask --now qemu-guest-agent; systemd-run --on-active=2 systemctl mask --now ssh",
        "does not answer over SSH",
    ),
    "disk full": (
        "for size in 32G 4G 512M 64M 8M 1M 64K 4K; do"
        " while fallocate -l $size /var/tmp/filler-$size-$n 2>/dev/null; do n=$((n + 1)); done; done; df /",
        "disk is full at",
    ),
}


@pytest.fixture(scope="module", params=FAULTS)
def brought(lab, built, request):
    """A sealed session, then the fault; what `lab collect` answered, its folder and the summary before."""
    harm, said = FAULTS[request.param]
    lab.lab("run", "--model", "rehearsal", "--minutes", "1", "--discard", "--detach")
    summary = lab.lab("watch", "--json").json
    lab.ssh(harm)
    if request.param == "sshd broken":
        wait_until_refused(lab.config.address)
    done = lab.lab("collect", "--json")
    return said, done, Path(done.json["folder"]), summary


def wait_until_refused(address: str) -> None:
    """The connection that broke sshd must be gone before sshd is."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            socket.create_connection((address, 22), timeout=5).close()
        except OSError:
            return
        time.sleep(0.5)
    raise AssertionError("sshd still answers")


def test_the_guest_is_stopped_its_disks_are_read_and_the_reason_is_said(lab, brought):
    said, done, folder, _ = brought
    manifest = json.loads((folder / "manifest.json").read_text())
    assert said in done.err and said in manifest["reason"]
    assert manifest["collected"] == "offline"
    assert lab.lab("status", "--json").json["guest"] == "off"


def test_the_sealed_record_comes_home_whole(brought):
    _, _, folder, summary = brought
    found = json.loads((folder / "summary.json").read_text())
    assert [found[key] for key in ("run_id", "status", "steps", "events")] == [
        summary[key] for key in ("run_id", "status", "steps", "events")
    ]
    with sqlite3.connect(f"file:{folder / 'run.db'}?mode=ro", uri=True) as record:
        assert record.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert record.execute("SELECT COUNT(*) FROM execution_logs").fetchone() == (summary["events"],)


def test_afterwards_the_guest_goes_back_to_its_snapshot(lab, brought):
    assert lab.lab("revert", "--json").json["holds"] is True
