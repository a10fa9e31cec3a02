"""TESTS: changes that leave the rows themselves as the ledger has them. The forger makes all sums fit."""

from __future__ import annotations

import json

import pytest

from labkit.gateway import commands

BOTH = ("run.db", "mirror.db")


def found(copy) -> tuple[str, str, str]:
    """(kind, file, record) of the first bad record."""
    copy.seal()
    first = copy.examine().first
    assert first, "nothing was found"
    return first.kind, first.where, first.record


def made_anew(copy, table: str, *statements: str) -> None:
    """The table without its schema's limits, then changed, in both copies."""
    for database in BOTH:
        anew = (f"ALTER TABLE {table} RENAME TO old", f"CREATE TABLE {table} AS SELECT * FROM old")
        copy.sql(*anew, *statements, "DROP TABLE old", database=database)


@pytest.mark.parametrize("table", ["execution_logs", "api_requests", "file_registry"])
def test_a_second_row_under_a_known_id_is_forged(copy, table):
    """The last of two is the one that a reader by id gets: queries and charts have both."""
    made_anew(copy, table, f"INSERT INTO {table} SELECT * FROM {table} WHERE id = 2")
    assert found(copy) == ("forged", "run.db", f"{table} 2")


def test_a_row_without_an_id_is_forged(copy):
    made_anew(copy, "execution_logs", "INSERT INTO execution_logs (event_type) VALUES ('BACKUP')")
    assert found(copy) == ("forged", "run.db", "execution_logs None")


def test_a_call_with_another_models_name_is_altered(copy):
    for database in BOTH:
        copy.sql("UPDATE api_requests SET model = 'other' WHERE id = 3", database=database)
    assert found(copy) == ("altered", "run.db", "api_requests 3")


@pytest.mark.parametrize("stored", ["{}", "x"])
def test_a_stored_summary_that_says_something_else_than_the_seal_is_altered(copy, stored):
    for database in BOTH:
        copy.sql(f"UPDATE session_state SET value = '{stored}' WHERE key = 'summary'", database=database)
    kind, where, record = found(copy)
    assert (kind, where) == ("altered", "run.db") and record.startswith("session_state summary")


def test_a_note_that_is_gone_and_said_to_have_been_lost_in_the_guest_is_found(copy):
    sql = "SELECT path FROM workspace_files WHERE lost IS NULL AND path LIKE 'notes/%' LIMIT 1"
    ((path,),) = copy.ask(sql)
    (copy.folder / "workspace" / path).unlink()
    for database in BOTH:
        copy.sql(f"UPDATE workspace_files SET lost = 'gone' WHERE path = '{path}'", database=database)
    kind, where, record = found(copy)
    assert (kind, where) == ("altered", "events") and record.startswith("event ")


def test_a_record_that_says_it_was_made_of_events_does_not_get_out_of_the_other_checks(copy):
    for database in BOTH:
        copy.sql("INSERT INTO session_state (key, value) VALUES ('rebuilt_from', 'x')", database=database)
    assert found(copy) == ("forged", "run.db", "session_state rebuilt_from")


def test_a_budget_in_the_hosts_own_folder_that_is_not_the_runs_is_found(copy):
    path = copy.folder / "gateway/gateway.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"budget_usd": 900.0}))
    assert found(copy) == ("altered", "run.db", "event 1")


def test_a_ledger_line_nested_without_end_is_no_reason_to_break_off(copy):
    lines = copy.lines("ledger.jsonl")
    lines[5] = b"[" * 100_000 + b"]" * 100_000 + b"\n"
    copy.put("ledger.jsonl", lines)
    assert found(copy)[:2] == ("altered", "gateway/ledger.jsonl")


def test_what_was_asked_and_not_handed_out_is_no_breach(copy):
    commands.append(copy.folder / "gateway", "stop", who={"user": "ada"})
    copy.seal()
    assert copy.examine().holds


def test_a_summary_without_end_is_not_read_whole_and_is_found(copy):
    file = copy.folder / "summary.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"x": " " * (17 << 20)}))
    copy.seal()
    first = copy.examine().first
    assert (first.kind, first.where) == ("missing", "summary.json") and "far too long" in first.what
