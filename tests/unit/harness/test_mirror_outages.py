"""UNIT: what can befall the mirror's file system: it is reported once, heals, and never stops the record."""

import os
import shutil
import sqlite3
import time

import pytest
from descriptors import opened_below
from loopback import until
from small_disks import command, small_disk

from harness.telemetry import copies, events, mirror
from harness.telemetry.recorder import Recorder

TABLES = ("execution_logs", "file_registry", "api_requests", "session_state", "prompts", "workspace_files")


def rows_of(path):
    connection = sqlite3.connect(path)
    try:
        return {table: connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall() for table in TABLES}
    finally:
        connection.close()


class Record:
    """A recorder whose mirror lies in `mirror`, and what a run would write with it."""

    def __init__(self, home, mirror):
        self.primary, self.mirror = home / "primary" / "run.db", mirror / "run.db"
        self.recorder = Recorder(self.primary, self.mirror, "", lambda: 1.0)

    def work(self, steps=3, size=10):
        """Steps with a row for each table."""
        for _ in range(steps):
            event = self.recorder.event(events.TOOL_RESULT, sanitized_output="x" * size)
            self.recorder.register(f"notes/{event}.md", "SCRATCHPAD", 1)
            self.recorder.insert("api_requests", {"purpose": "worker"})
            self.recorder.prompt(f"p{event}", "text", "00")
            self.recorder.workspace_files([(f"notes/{event}.md", size, None, event, None, None)])
            self.recorder.checkpoint({"step": str(event)})

    def words(self):
        sql = "SELECT event_type FROM execution_logs WHERE event_type LIKE 'MIRROR%' ORDER BY id"
        return [word for (word,) in self.recorder.query(sql)]

    def assert_healed(self, outages=1):
        assert self.words() == ["MIRROR_DEGRADED", "MIRROR_HEALED"] * outages
        assert self.recorder.mirror_state == "ok"
        assert rows_of(self.primary) == rows_of(self.mirror)


@pytest.fixture
def record(tmp_path):
    return Record(tmp_path, tmp_path / "mirror")


def test_a_full_mirror_heals_when_there_is_room(tmp_path):
    with small_disk("tmpfs", 1) as disk:
        record = Record(tmp_path, disk.folder)
        record.work(20, size=100_000)
        assert record.words() == ["MIRROR_DEGRADED"]
        assert "full" in record.recorder.mirror_state
        disk.remount("size=32m")
        record.work()
        record.assert_healed()


def test_an_aborted_file_system_is_an_outage_until_it_is_mounted_again(tmp_path):
    with small_disk("ext4", 16) as disk:
        record = Record(tmp_path, disk.folder)
        record.work()
        disk.remount("abort")  # as after an I/O error: every write fails from here on
        record.work()
        assert record.words() == ["MIRROR_DEGRADED"]
        disk.unmount()
        record.work()
        disk.mount()
        record.work()
        record.assert_healed()


def test_a_mirror_that_comes_back_read_only_stays_an_outage_until_it_can_be_written(tmp_path):
    with small_disk("ext4", 16) as disk:
        record = Record(tmp_path, disk.folder)
        record.work()
        disk.unmount()
        record.work()
        disk.mount()
        disk.remount("ro")
        record.work()
        assert record.words() == ["MIRROR_DEGRADED"]
        assert "readonly" in record.recorder.mirror_state
        disk.remount("rw")
        record.work()
        record.assert_healed()


def test_a_detached_mirror_is_noticed_and_nothing_is_written_on_the_disk_below(tmp_path):
    with small_disk("tmpfs", 8) as disk:
        record = Record(tmp_path, disk.folder)
        record.work()
        disk.unmount()
        record.work()
        assert record.words() == ["MIRROR_DEGRADED"]
        assert "nothing is mounted" in record.recorder.mirror_state
        assert list(disk.folder.iterdir()) == []
        disk.mount()  # an empty one
        record.work()
        record.assert_healed()


def test_a_mirror_whose_folder_is_gone_is_made_anew_with_every_row(record, tmp_path):
    record.work()
    shutil.rmtree(tmp_path / "mirror")
    record.work()
    record.assert_healed()


def test_each_outage_is_reported_once(record, tmp_path):
    for number in range(2):
        os.rename(tmp_path / "mirror", tmp_path / f"gone-{number}")
        (tmp_path / "mirror").write_text("in the way")
        record.work()
        assert record.words().count("MIRROR_DEGRADED") == number + 1
        (tmp_path / "mirror").unlink()
        record.work()
    record.assert_healed(outages=2)


def test_a_damaged_mirror_is_kept_aside_and_a_whole_one_takes_its_place(record, tmp_path):
    record.work()
    for name in ("run.db", "run.db-wal", "run.db-shm"):
        (tmp_path / "mirror" / name).unlink(missing_ok=True)
    (tmp_path / "mirror" / "run.db").write_bytes(b"not a database" * 1000)
    record.work()
    record.assert_healed()
    assert (tmp_path / "mirror/earlier/damaged/run.db").read_bytes().startswith(b"not a database")


def test_a_locked_mirror_holds_a_write_up_for_a_second_and_heals_after(record):
    record.work()
    holder = sqlite3.connect(record.mirror, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    record.work(1)
    assert record.words() == ["MIRROR_DEGRADED"]
    assert "locked" in record.recorder.mirror_state
    holder.execute("ROLLBACK")
    holder.close()
    record.work(1)
    record.assert_healed()


def test_a_mirror_without_rows_in_its_middle_gets_them_back(record, tmp_path):
    record.work(5)
    record.recorder.close_mirror()
    damaged = sqlite3.connect(record.mirror)
    damaged.execute("DELETE FROM execution_logs WHERE id IN (2, 3)")
    damaged.execute("DELETE FROM prompts")
    damaged.commit()
    damaged.close()
    again = Record(tmp_path, tmp_path / "mirror")
    assert rows_of(again.primary) == rows_of(again.mirror)


def test_a_run_db_that_lost_its_last_rows_gets_them_from_the_mirror_and_says_so(record, tmp_path):
    record.work(5)
    record.recorder.close_mirror()
    record.recorder.db.execute("DELETE FROM execution_logs WHERE id > 2")
    record.recorder.db.execute("DELETE FROM api_requests WHERE id > 2")
    record.recorder.db.execute("UPDATE session_state SET value = '2'")
    record.recorder.db.close()
    again = Record(tmp_path, tmp_path / "mirror")
    assert again.recorder.state()["step"] == "5"
    rows = rows_of(again.primary)
    assert [row[0] for row in rows["execution_logs"]] == [1, 2, 3, 4, 5, 6]
    assert "run.db had lost" in str(rows["execution_logs"][-1])
    assert rows == rows_of(again.mirror)


def test_a_run_db_gets_all_of_its_lost_rows_back_or_none_of_them(record, tmp_path):
    """Half of them, and the next start would not find that it lacks the others."""
    record.work(5)
    record.recorder.close_mirror()
    record.recorder.db.execute("DELETE FROM execution_logs WHERE id > 2")
    record.recorder.db.execute("DELETE FROM api_requests WHERE id > 2")
    record.recorder.db.execute("UPDATE session_state SET value = '2'")
    full = "BEGIN SELECT RAISE(ABORT, 'as on a full disk'); END"
    record.recorder.db.execute(f"CREATE TRIGGER full BEFORE INSERT ON session_state {full}")
    with sqlite3.connect(record.mirror) as held, pytest.raises(sqlite3.Error, match="full disk"):
        copies.copy_missing(held, record.recorder.db)
    record.recorder.db.execute("DROP TRIGGER full")
    record.recorder.db.close()
    again = Record(tmp_path, tmp_path / "mirror")
    rows = rows_of(again.primary)
    assert len(rows["api_requests"]) == 5
    assert again.recorder.state()["step"] == "5"
    assert rows == rows_of(again.mirror)


def test_a_mirror_of_another_record_is_kept_aside_and_nothing_of_it_is_mixed_in(tmp_path):
    other = Record(tmp_path / "other", tmp_path / "theirs")
    other.work(9)
    other.recorder.close_mirror()
    ours = Record(tmp_path, tmp_path / "mirror")
    ours.recorder.event(events.RUN_STARTED)
    again = Record(tmp_path, tmp_path / "theirs")
    assert [row[5] for row in rows_of(again.primary)["execution_logs"]] == ["RUN_STARTED"]
    assert rows_of(again.primary) == rows_of(again.mirror)
    assert len(rows_of(tmp_path / "theirs/earlier/not-this-run/run.db")["execution_logs"]) == 9


def test_an_outage_that_outlasts_a_restart_is_not_reported_again_and_its_end_is(record, tmp_path):
    record.work()
    os.rename(tmp_path / "mirror", tmp_path / "away")
    (tmp_path / "mirror").write_text("in the way")
    record.work()
    again = Record(tmp_path, tmp_path / "mirror")
    again.work()
    assert again.words() == ["MIRROR_DEGRADED"]
    assert again.recorder.mirror_state.startswith("degraded: ")
    (tmp_path / "mirror").unlink()
    last = Record(tmp_path, tmp_path / "mirror")
    last.assert_healed()


def test_a_mirror_that_fails_while_the_run_is_sealed_adds_no_event_to_the_final_figures(record, tmp_path):
    record.work()
    record.recorder.sealing = True
    shutil.rmtree(tmp_path / "mirror")
    (tmp_path / "mirror").write_text("in the way")
    record.recorder.checkpoint({"status": "sealed"})
    record.recorder.event(events.RUN_SEALED)
    assert record.words() == []
    assert record.recorder.mirror_state.startswith("degraded: ")


class Frozen:
    """A file system as `fsfreeze` leaves it: a write holds its thread in the kernel until it is thawed.

    Meanwhile its record is impatient; at other times a slow disk of this machine is no outage.
    """

    def __init__(self, folder, record=None):
        self.folder, self.record = folder, record

    def __enter__(self):
        command("fsfreeze", "--freeze", self.folder)
        if self.record:
            self.record.recorder.mirror._patience.seconds = 0.5

    def __exit__(self, *_):
        command("fsfreeze", "--unfreeze", self.folder)


def test_a_mirror_that_never_answers_holds_the_run_once_and_heals(tmp_path):
    with small_disk("ext4", 16) as disk:
        record = Record(tmp_path, disk.folder)
        record.work()
        with Frozen(disk.folder, record):
            began = time.monotonic()
            record.work(20)
            assert time.monotonic() - began < 30, "and not for half a second at each of 120 writes"
            assert record.words() == ["MIRROR_DEGRADED"]
            assert "has still not answered" in record.recorder.mirror_state
        until(lambda: not record.recorder.mirror.held)
        record.recorder.mirror._patience.seconds = mirror.ANSWER_SECONDS
        record.work()
        record.assert_healed()
        record.recorder.close_mirror()  # or the disk could not be unmounted


def test_a_mirror_that_never_answers_when_a_run_is_taken_up_again_does_not_hold_it(tmp_path, monkeypatch):
    with small_disk("ext4", 16) as disk:
        record = Record(tmp_path, disk.folder)
        record.work()
        record.recorder.close_mirror()
        with Frozen(disk.folder), monkeypatch.context() as impatient:
            impatient.setattr(mirror, "ANSWER_SECONDS", 0.5)
            again = Record(tmp_path, disk.folder)
            again.work()
            assert again.words() == ["MIRROR_DEGRADED"]
            assert again.recorder.mirror.check() == "not open"
            again.recorder.close_mirror()
        until(lambda: not again.recorder.mirror.held)
        again.recorder.mirror._patience.seconds = mirror.ANSWER_SECONDS
        again.work()
        again.assert_healed()
        again.recorder.close_mirror()


def test_a_mirror_that_stops_answering_at_the_end_does_not_hold_the_seal(tmp_path):
    with small_disk("ext4", 16) as disk:
        record = Record(tmp_path, disk.folder)
        record.work()
        with Frozen(disk.folder, record):
            record.recorder.event(events.RUN_SEALED)
            record.recorder.close_mirror()
            assert rows_of(record.primary)["execution_logs"][-1][5] == "RUN_SEALED"
            record.recorder.close()
        until(lambda: not record.recorder.mirror.held)


def test_a_record_that_was_closed_leaves_no_thread_and_no_open_file(record, tmp_path):
    record.work()
    thread = record.recorder.mirror._patience._thread
    assert thread.is_alive() and len(opened_below(tmp_path)) >= 4
    record.recorder.close()
    assert not thread.is_alive() and opened_below(tmp_path) == []
