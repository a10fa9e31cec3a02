"""TESTS: a run comes home from the disks of a guest that is off, whatever state they are in."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from pathlib import Path

import guest_disks
import pytest
import synthetic_run

from labkit import dead_disks, offline, runs, salvage, snapshot, state
from labkit.errors import LabError
from labkit.gateway.ledger import Ledger
from labkit.untar import Limits

RUN_ID = synthetic_run.RUN_ID
pytestmark = pytest.mark.skipif(
    bool(guest_disks.missing()), reason=f"not installed: {', '.join(guest_disks.missing())}"
)


class DeadGuest:
    """A lab's folder with disks, the trees that lie on them, and where its run goes."""

    def __init__(self, root):
        self.root = root
        self.place = snapshot.Place("unit", root / "lab", "192.0.2.1")
        self.gateway = root / "lab/gateway" / RUN_ID
        self.target = root / "runs" / RUN_ID
        self.gateway.mkdir(parents=True)
        (self.gateway / "events.jsonl").write_text("")
        self.trees = guest_disks.trees(root / "trees")

    def build(self, damage=None):
        guest_disks.build(self.place.disks_dir, self.trees, damage)
        return self

    def collect(self, **limits):
        return offline.bring(
            self.place, "/sandbox", self.gateway, self.target, "the guest is off", Limits(**limits)
        )

    def manifest(self):
        return json.loads((self.target / "manifest.json").read_text())

    def summary(self):
        return json.loads((self.target / "summary.json").read_text())

    def push(self, *rows):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (self.gateway / "events.jsonl").write_text(lines)


def event(number, word="WORKER_THOUGHT", **more):
    row = dict.fromkeys(salvage.COLUMNS)
    return (
        row
        | {"id": number, "event_type": word, "step_number": number, "elapsed_seconds": number * 2.5}
        | more
    )


@pytest.fixture
def guest(tmp_path):
    return DeadGuest(tmp_path)


@pytest.fixture
def events_only(guest):
    guest.push(event(1, "RUN_STARTED"), event(2, prompt_tokens=100, cost_usd=0.25), event(3))
    return guest


def test_everything_that_was_acknowledged_before_the_kill_is_in_the_record(guest):
    (rows,) = [guest_disks.rows(guest.trees["lab-telemetry"] / "run.db")]
    guest.build().collect()
    assert guest_disks.rows(guest.target / "run.db") == guest_disks.rows(guest.target / "mirror.db") == rows
    assert guest.manifest()["databases"]["run.db"]["integrity"] == "ok"
    assert not list(guest.target.glob("*-wal"))
    assert runs.verify_sums(guest.target).problems == ()


def test_files_come_byte_for_byte_and_the_last_whole_generation_is_the_backup(guest):
    guest.build().collect()
    workspace = guest.trees["lab-root"] / "sandbox/workspace"
    for name in ("notes/find.md", "notes/odd \\ name\nwith a break.md", "big.bin"):
        assert (guest.target / "workspace" / name).read_bytes() == (workspace / name).read_bytes()
    assert (guest.target / "backup/notes/find.md").read_text() == "newest"
    assert (guest.target / "outputs/1.txt").read_text() == "total 0\n"


def test_links_are_listed_and_never_made(guest):
    guest.build().collect()
    assert not os.path.lexists(guest.target / "workspace/leak")
    skipped = guest.manifest()["skipped"]
    assert skipped == [{"name": "workspace/leak", "reason": "symbolic link to /etc/passwd"}]


def test_the_manifest_says_how_it_came_and_the_run_counts_as_collected(guest):
    guest.build().collect()
    found = guest.manifest()
    assert (found["collected"], found["reason"], found["sealed_in_guest"]) == (
        "offline",
        "the guest is off",
        False,
    )
    assert found["guest"]["problems"] == []
    assert state.read(guest.place.dir)["collected"] is True


def test_a_run_that_was_cut_off_has_a_summary_of_facts_and_is_listed_as_not_sealed(guest):
    guest.build().collect()
    summary = guest.summary()
    assert (summary["status"], summary["stop_reason"], summary["steps"]) == ("unsealed", "interrupted", 12)
    assert summary["events"] == guest_disks.rows(guest.target / "run.db")
    (info,) = runs.list_runs(guest.target.parent)
    assert info.complete and not info.sealed and info.stop_reason == "interrupted"


def sealed_with(guest, summary: str) -> Path:
    """A guest that died after its seal, with this summary.json; returns the sealed record."""
    telemetry = guest.trees["lab-telemetry"]
    (telemetry / "sealed").mkdir()
    synthetic_run.database(telemetry / "sealed/run.db", steps=12)
    (telemetry / "summary.json").write_text(summary)
    guest.build().collect()
    return telemetry / "sealed/run.db"


def test_a_run_that_was_sealed_before_the_guest_died_comes_as_sealed(guest):
    sealed = sealed_with(guest, '{"status": "sealed", "stop_reason": "report delivered"}')
    assert guest.manifest()["sealed_in_guest"] is True
    assert guest_disks.rows(guest.target / "run.db") == guest_disks.rows(sealed)
    assert guest.summary()["stop_reason"] == "report delivered"


def test_a_summary_that_never_reached_the_disk_is_made_from_the_record(guest):
    sealed_with(guest, "")
    assert guest.summary()["steps"] == 12


def test_the_mirror_becomes_the_record_where_it_is_the_longer_one(guest):
    telemetry = guest.trees["lab-telemetry"]
    shutil.rmtree(telemetry)
    guest_disks.live_database(telemetry, steps=5)
    guest.build().collect()
    assert guest_disks.rows(guest.target / "run.db") == guest_disks.rows(guest.target / "mirror.db") > 20
    assert "the mirror" in guest.manifest()["guest"]["record"]
    assert (guest.target / "not-the-record/primary.db").is_file()


def test_rows_that_only_the_host_has_are_told(guest):
    rows = guest_disks.rows(guest.trees["lab-telemetry"] / "run.db")
    guest.push(*(event(number) for number in range(1, rows + 3)))
    guest.build().collect()
    assert "gateway/events.jsonl has 2 rows that the record lacks" in offline.said(guest.target)


def test_a_damaged_run_db_is_kept_beside_the_mirror_that_takes_its_place(guest):
    telemetry = guest.trees["lab-telemetry"]
    (telemetry / "run.db-wal").unlink()
    content = bytearray((telemetry / "run.db").read_bytes())
    content[4096:12288] = bytes(8192)
    (telemetry / "run.db").write_bytes(content)
    guest.build().collect()
    assert guest.manifest()["databases"]["run.db"]["integrity"] == "ok"
    assert any("primary.db does not hold" in problem for problem in guest.manifest()["guest"]["problems"])
    assert (guest.target / "not-the-record/primary.db").read_bytes() == content
    assert any("primary.db" in line for line in offline.said(guest.target))


def test_a_journal_that_was_not_replayed_is_replayed_on_the_copy(guest, tmp_path):
    workspace = guest.trees["lab-root"] / "sandbox/workspace"
    (workspace / "late.bin").write_bytes(b"a" * 4096)
    newer = tmp_path / "newer"
    newer.write_bytes(b"b" * 4096)

    def journal(raw, offsets):
        if "lab-root" not in offsets:
            return
        disk = tmp_path / "partition"  # debugfs writes a journal only where the disk begins
        content = raw.read_bytes()
        disk.write_bytes(content[offsets["lab-root"] :])
        blocks = guest_disks.run("debugfs", "-R", "blocks /sandbox/workspace/late.bin", disk).split()
        script = tmp_path / "script"
        script.write_text(f"jo\njw -b {','.join(blocks)} {newer}\njc\n")
        guest_disks.run("debugfs", "-w", "-f", script, disk)
        assert "needs_recovery" in guest_disks.run("debugfs", "-R", "features", disk)
        raw.write_bytes(content[: offsets["lab-root"]] + disk.read_bytes())

    guest.build(journal).collect()
    assert (guest.target / "workspace/late.bin").read_bytes() == b"b" * 4096
    assert guest.manifest()["guest"]["problems"] == []


def test_the_guests_own_disks_are_not_touched_and_no_copy_is_left(guest):
    guest.build()
    before = {path: path.read_bytes() for path in guest.place.disks_dir.iterdir()}
    guest.collect()
    assert {path: path.read_bytes() for path in guest.place.disks_dir.iterdir()} == before
    assert not (guest.place.dir / dead_disks.FOLDER).exists()


def test_a_full_root_disk_comes_home_like_any_other(guest):
    def fill(raw, offsets):
        if "lab-root" in offsets:
            filler = raw.with_name("filler")
            filler.write_bytes(b"x" * (20 << 20))
            disk = f"{raw}?offset={offsets['lab-root']}"
            for number in range(3):
                subprocess.run(
                    ["debugfs", "-w", "-R", f"write {filler} full-{number}", disk],
                    capture_output=True, env={"PATH": "/usr/sbin:/usr/bin"}, check=False,
                )  # fmt: skip
            filler.unlink()
            assert "Free blocks:              0" in guest_disks.run("debugfs", "-R", "stats -h", disk)

    guest.build(fill).collect()
    assert (
        runs.is_complete(guest.target) and (guest.target / "workspace/big.bin").stat().st_size == 256 * 6000
    )


def test_a_partition_that_is_gone_costs_what_lay_on_it_and_nothing_else(guest):
    def wipe(raw, offsets):
        if "lab-mirror" in offsets:
            with raw.open("r+b") as file:
                file.seek(offsets["lab-mirror"])
                file.write(bytes(16 << 20))

    guest.build(wipe).collect()
    assert any("lab-mirror" in problem for problem in guest.manifest()["guest"]["problems"])
    assert runs.is_complete(guest.target) and not (guest.target / "mirror.db").exists()
    assert (guest.target / "backup/notes/find.md").read_text() == "newest"


def test_a_missing_data_disk_is_named(guest):
    guest.build()
    (guest.place.disks_dir / "data.qcow2").unlink()
    guest.collect()
    problems = " ".join(guest.manifest()["guest"]["problems"])
    assert "lab-mirror" in problems and "lab-backups" in problems and (guest.target / "run.db").is_file()


def test_a_sparse_giant_is_left_out_and_named(guest):
    giant = guest.trees["lab-root"] / "sandbox/workspace/giant"
    with giant.open("wb") as file:
        file.truncate(1 << 34)
    guest.build().collect()
    assert not (guest.target / "workspace/giant").exists()
    assert any("workspace/giant: 17179869184 bytes" in line for line in guest.manifest()["guest"]["problems"])


def test_a_host_without_room_says_both_numbers_before_anything_is_done(guest, monkeypatch):
    guest.build()
    monkeypatch.setattr(dead_disks, "SPARE_BYTES", 1 << 60)
    with pytest.raises(LabError, match=r"takes up to [\d.]+ GiB .* are free") as caught:
        dead_disks.demand_room(guest.place.dir)
    assert "lab gc" in caught.value.hint


def test_without_any_disk_the_gateways_events_become_the_record_and_say_so(events_only):
    events_only.collect()
    assert guest_disks.rows(events_only.target / "run.db") == 3
    assert events_only.manifest()["collected"] == "events"
    assert "no disk of the guest is left" in offline.said(events_only.target)[0]
    manifest = events_only.manifest()
    manifest["guest"]["problems"] = ["a name\nrun x is in runs/x"]
    (events_only.target / "manifest.json").write_text(json.dumps(manifest))
    assert offline.said(events_only.target)[-1] == "a name\\nrun x is in runs/x"
    summary = events_only.summary()
    assert (summary["steps"], summary["cost_usd"], summary["elapsed_seconds"]) == (3, 0.25, 7.5)


def test_events_of_a_sealed_run_bring_its_own_summary(events_only):
    text = json.dumps({"status": "sealed", "stop_reason": "time limit reached"})
    events_only.push(event(1, "RUN_STARTED"), event(2, "RUN_SEALED", sanitized_output=text))
    events_only.collect()
    assert events_only.summary()["stop_reason"] == "time limit reached"


def test_damaged_lines_among_the_events_are_passed_over(events_only):
    path = events_only.gateway / "events.jsonl"
    path.write_text(
        path.read_text() + '{"id": "x"}\nnot json\n' + json.dumps(event(4, phase=["odd"])) + "\n{"
    )
    events_only.collect()
    assert guest_disks.rows(events_only.target / "run.db") == 4


def test_rows_that_only_the_ledger_of_a_killed_gateway_has_come_as_well(events_only):
    ledger = Ledger(events_only.gateway, RUN_ID)  # never closed
    ledger.accept({"run_id": RUN_ID, "events": [event(4), event(5)]})
    events_only.push(event(1, "RUN_STARTED"))
    events_only.collect()
    assert guest_disks.rows(events_only.target / "run.db") == 5
    assert not list(events_only.gateway.glob("*.journal"))


def test_disks_without_any_database_leave_the_events_as_the_record(events_only):
    for label in ("lab-telemetry", "lab-mirror"):
        shutil.rmtree(events_only.trees[label])
        events_only.trees[label].mkdir()
    events_only.build().collect()
    assert "the gateway's events (3 rows)" in events_only.manifest()["guest"]["record"]
    assert (events_only.target / "workspace/notes/find.md").is_file()


def test_a_run_of_which_nothing_is_left_is_one_sentence(guest):
    with pytest.raises(LabError, match="nothing of run .* is left") as caught:
        guest.collect()
    assert "--discard" in caught.value.hint and not guest.target.exists()


def test_a_view_in_the_place_of_a_table_does_not_make_a_record(guest):
    path = guest.trees["lab-telemetry"] / "run.db"
    shutil.rmtree(path.parent)
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("CREATE VIEW execution_logs AS SELECT 1 AS id")
    connection.close()
    guest.build().collect()
    assert "the mirror" in guest.manifest()["guest"]["record"]
