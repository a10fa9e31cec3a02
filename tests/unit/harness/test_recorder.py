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


@pytest.mark.parametrize("shorter", ["a", "b"])
def test_a_run_that_an_earlier_harness_began_goes_on_with_a_column_that_came_since(tmp_path, shorter):
    first = open_recorder(tmp_path)
    fill(first)
    first.close()
    for copy in ("a", "b"):
        with sqlite3.connect(tmp_path / copy / "run.db") as db:
            db.execute("ALTER TABLE api_requests DROP COLUMN cost_source")
    with sqlite3.connect(tmp_path / shorter / "run.db") as db:
        db.execute("DELETE FROM execution_logs WHERE id > 3")
    recorder = open_recorder(tmp_path)
    recorder.insert("api_requests", {"purpose": "worker", "cost_source": "billed"})
    assert recorder.mirror_state == "ok"
    assert recorder.query("SELECT cost_source FROM api_requests ORDER BY id") == [(None,), ("billed",)]
    assert_equal_copies(tmp_path / "a", tmp_path / "b")


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


def test_half_a_character_pair_is_recorded_as_a_question_mark(tmp_path):
    recorder = open_recorder(tmp_path)
    recorder.event(events.API_ERROR, sanitized_output="gr\u00fc\u00dfe \ud83d")
    assert recorder.query("SELECT sanitized_output FROM execution_logs") == [("gr\u00fc\u00dfe ?",)]


def test_an_event_outside_the_vocabulary_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="not an event word"):
        open_recorder(tmp_path).event("SOMETHING")


def test_a_row_that_is_written_with_the_next_one_stands_before_it_in_both_copies(tmp_path):
    recorder = open_recorder(tmp_path)
    recorder.insert("api_requests", {"purpose": "worker"}, later=True)
    recorder.event(events.WORKER_THOUGHT, sanitized_output="first", later=True)
    assert all_rows(tmp_path / "a" / "run.db") == all_rows(tmp_path / "a" / "run.db", "api_requests") == []
    assert recorder.event(events.TOOL_CALL, tool_name="read_file") == 2
    assert [row[5] for row in all_rows(tmp_path / "a" / "run.db")] == ["WORKER_THOUGHT", "TOOL_CALL"]
    recorder.checkpoint({})
    assert_equal_copies(tmp_path / "a", tmp_path / "b")


def test_who_asks_the_record_or_writes_a_checkpoint_finds_what_waits_in_it(tmp_path):
    recorder = open_recorder(tmp_path)
    recorder.insert("api_requests", {"cost_usd": 0.5}, later=True)
    assert recorder.query("SELECT cost_usd FROM api_requests") == [(0.5,)]
    recorder.event(events.WORKER_THOUGHT, later=True)
    recorder.checkpoint({"step": "1"})
    assert len(all_rows(tmp_path / "a" / "run.db")) == 1
    assert_equal_copies(tmp_path / "a", tmp_path / "b")


def test_what_waits_outlives_a_full_disk_and_a_row_that_cannot_be_written_holds_up_no_other(tmp_path):
    recorder = open_recorder(tmp_path)
    recorder.db.execute("PRAGMA query_only=1")  # as a disk that takes nothing
    recorder.event(events.WORKER_THOUGHT, later=True)
    with pytest.raises(sqlite3.OperationalError):
        recorder.event(events.TOOL_CALL)
    recorder.db.execute("PRAGMA query_only=0")
    recorder.event(events.GUARD)
    recorder.insert("api_requests", {"finish_reason": ["no text"]}, later=True)
    with pytest.raises(sqlite3.ProgrammingError):
        recorder.event(events.WORKER_THOUGHT)
    recorder.event(events.TOOL_RESULT)
    words = [row[5] for row in all_rows(tmp_path / "a" / "run.db")]
    assert words == ["WORKER_THOUGHT", "GUARD", "TOOL_RESULT"]


def test_a_checkpoint_writes_what_changed_and_a_mirror_that_was_away_gets_all_of_it(tmp_path):
    recorder = open_recorder(tmp_path)
    recorder.checkpoint({"step": "1", "digest": "D"})
    recorder.stamped = lambda: "2026-11-30 00:00:00"
    recorder.checkpoint({"step": "2", "digest": "D"})
    kept = {key: (value, at) for key, value, at in all_rows(tmp_path / "a" / "run.db", "session_state")}
    assert kept["step"] == ("2", "2026-11-30 00:00:00")
    assert kept["digest"][0] == "D" and kept["digest"][1] != "2026-11-30 00:00:00"
    recorder.mirror.db.execute("DROP TABLE session_state")
    for step in "345":
        recorder.checkpoint({"step": step, "digest": "D"})
    assert recorder.mirror_state == "ok"
    assert_equal_copies(tmp_path / "a", tmp_path / "b")


def test_how_many_files_are_registered_is_known_after_a_restart_too(tmp_path):
    recorder = open_recorder(tmp_path)
    for name in ("notes/a.md", "notes/b.md", "notes/a.md"):
        recorder.register(name, "SCRATCHPAD", 1)
    again = open_recorder(tmp_path)
    assert recorder.registered("SCRATCHPAD") == again.registered("SCRATCHPAD") == 2
    assert again.registered("SCRIPT") == 0


def test_the_primary_is_written_through_to_the_disk(tmp_path):
    recorder = open_recorder(tmp_path)
    assert recorder.query("PRAGMA synchronous") == [(2,)]
    assert recorder.query("PRAGMA journal_mode") == [("wal",)]
    assert recorder.mirror.db.execute("PRAGMA synchronous").fetchone() == (1,)
