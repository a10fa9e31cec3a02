"""HOST: QEMU is killed in the middle of a session; what the guest had written comes home from its disks."""

import json
import os
import signal
import sqlite3
import time
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def killed(lab, built):
    """The gateway's folder of a session whose guest died under it."""
    words = ("run", "--model", "rehearsal", "--minutes", "10", "--discard", "--detach", "--json")
    run_id = lab.lab(*words).json["run"]
    deadline = time.monotonic() + 480
    while lab.lab("status", "--json").json["step"] < 12:
        assert time.monotonic() < deadline, "the session did not get to step 12"
        time.sleep(3)
    pid = int(Path(f"/run/libvirt/qemu/{lab.config.name}.pid").read_text())
    os.kill(pid, signal.SIGKILL)
    return lab.config.gateway_dir / run_id


@pytest.fixture(scope="module")
def salvaged(lab, killed):
    """The folder of the run that `lab collect` brought from the dead guest's disks."""
    return Path(lab.lab("collect", "--json").json["folder"])


def test_the_record_of_a_killed_guest_is_whole_and_says_where_it_came_from(killed, salvaged):
    manifest = json.loads((salvaged / "manifest.json").read_text())
    assert manifest["collected"] == "offline" and manifest["sealed_in_guest"] is False
    with sqlite3.connect(f"file:{salvaged / 'run.db'}?mode=ro", uri=True) as record:
        assert record.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        rows = dict(record.execute("SELECT id, event_type FROM execution_logs"))
    pushed = [json.loads(line) for line in (killed / "events.jsonl").read_text().splitlines()]
    assert len(rows) > 30 and {row["id"] for row in pushed} <= set(rows)


def test_the_notes_and_the_first_generation_of_a_killed_guest_are_there(salvaged):
    assert list((salvaged / "workspace" / "notes").glob("*.md"))
    assert list((salvaged / "backup" / "notes").glob("*.md"))


def test_a_run_that_was_salvaged_can_be_asked_and_the_guest_reverts(lab, salvaged):
    known = {run["run_id"]: run for run in lab.lab("runs", "--json").json}
    assert known[salvaged.name]["sealed"] is False
    assert lab.lab("query", "tool_calls", "--run", salvaged.name, "--json").json
    assert lab.lab("revert", "--json").json["holds"] is True
