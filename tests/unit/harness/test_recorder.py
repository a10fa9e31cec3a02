"""UNIT: the record is written twice, and a broken mirror stops nothing."""

import sqlite3

import pytest

from harness.telemetry import events
from harness.telemetry.recorder import Recorder

TABLES = ("execution_logs", "file_registry", "api_requests", "session_state", "prompts", "workspace_files")


def open_recorder(tmp_path):
    return Recorder(tmp_path / "a" / "run.db", tmp_path / "b" / "run.db", "s3cret-token", lambda: 12.5)


def all_rows(path, table="execution_logs"):
    return sqlite3.connect(path).execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()


def fill(recorder):
    for number in range(5):
        recorder.event(events.TOOL_RESULT, tool_name="x", sanitized_output=f"r{number}")
    recorder.register("notes/a.md", "SCRATCHPAD", 1)
    recorder.checkpoint({"step": "5"})
    recorder.prompt("worker", "text", "00")
    recorder.insert("api_requests", {"purpose": "worker", "status": "ok"})
    recorder.workspace_files([("notes/a.md", 3, "00", 1, None, None)])
    recorder.tend_mirror()


def assert_equal_copies(one, other):
    for table in TABLES:
        assert all_rows(one / "run.db", table) == all_rows(other / "run.db", table)


def test_both_copies_hold_the_same_rows_under_the_same_ids(tmp_path):
    fill(open_recorder(tmp_path))
    for table in TABLES:
        rows = all_rows(tmp_path / "a" / "run.db", table)
        assert rows == all_rows(tmp_path / "b" / "run.db", table) != []


def test_a_mirror_that_fails_is_reported_once_and_healed_at_the_next_checkpoint(tmp_path):
    recorder = open_recorder(tmp_path)
    recorder.event(events.RUN_STARTED)
    recorder.mirror.db.execute("DROP TABLE execution_logs")
    for _ in range(3):
        recorder.event(events.TOOL_RESULT)
    assert recorder.mirror_state == "degraded: no such table: execution_logs"
    fill(recorder)
    words = [row[0] for row in recorder.query("SELECT event_type FROM execution_logs")]
    assert (words.count("MIRROR_DEGRADED"), words.count("MIRROR_HEALED")) == (1, 1)
    assert words.count("TOOL_RESULT") == 8
    assert recorder.mirror_state == "ok"
    assert_equal_copies(tmp_path / "a", tmp_path / "b")


def test_a_mirror_that_cannot_be_opened_is_reported_too(tmp_path):
    (tmp_path / "b").write_text("a file where the mirror's folder should be")
    recorder = open_recorder(tmp_path)
    fill(recorder)
    assert recorder.query("SELECT COUNT(*) FROM execution_logs") == [(6,)]


def test_a_mirror_left_behind_by_a_crash_gets_the_missing_rows(tmp_path):
    first = open_recorder(tmp_path)
    fill(first)
    first.mirror.db.execute("DELETE FROM execution_logs WHERE id > 3")
    second = open_recorder(tmp_path)
    second.event(events.RESUMED)
    assert second.mirror_state == "ok"
    rows = all_rows(tmp_path / "b" / "run.db")
    assert rows == all_rows(tmp_path / "a" / "run.db")
    assert len(rows) == 6


def test_the_run_token_never_enters_the_record(tmp_path):
    recorder = open_recorder(tmp_path)
    recorder.event(
        events.TOOL_RESULT, sanitized_output="token=s3cret-token.", command_or_input="s3cret-token"
    )
    recorder.checkpoint({"window": "s3cret-token"})
    for name in ("a", "b"):
        assert "s3cret" not in str(all_rows(tmp_path / name / "run.db"))
        assert "s3cret" not in str(all_rows(tmp_path / name / "run.db", "session_state"))


def test_an_event_outside_the_vocabulary_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="not an event word"):
        open_recorder(tmp_path).event("SOMETHING")


def test_the_primary_is_written_through_to_the_disk(tmp_path):
    recorder = open_recorder(tmp_path)
    assert recorder.query("PRAGMA synchronous") == [(2,)]
    assert recorder.query("PRAGMA journal_mode") == [("wal",)]
    assert recorder.mirror.db.execute("PRAGMA synchronous").fetchone() == (1,)
