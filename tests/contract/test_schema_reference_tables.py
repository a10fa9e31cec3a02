"""TESTS: the reference run's three tables, written a second time: a change is made twice on purpose."""

import sqlite3
from pathlib import Path

import pytest

SCHEMA = Path(__file__).parents[2] / "harness" / "telemetry" / "schema.sql"

# name, declared type, default, place in the primary key
REFERENCE = {
    "execution_logs": [
        ("id", "INTEGER", None, 1),
        ("step_number", "INTEGER", None, 0),
        ("timestamp", "DATETIME", "CURRENT_TIMESTAMP", 0),
        ("elapsed_seconds", "REAL", None, 0),
        ("phase", "TEXT", None, 0),
        ("event_type", "TEXT", None, 0),
        ("tool_name", "TEXT", None, 0),
        ("command_or_input", "TEXT", None, 0),
        ("sanitized_output", "TEXT", None, 0),
        ("guard_status", "TEXT", None, 0),
        ("guard_reason", "TEXT", None, 0),
        ("prompt_tokens", "INTEGER", None, 0),
        ("completion_tokens", "INTEGER", None, 0),
        ("cached_tokens", "INTEGER", None, 0),
        ("cost_usd", "REAL", None, 0),
    ],
    "file_registry": [
        ("id", "INTEGER", None, 1),
        ("timestamp", "DATETIME", "CURRENT_TIMESTAMP", 0),
        ("file_path", "TEXT", None, 0),
        ("file_type", "TEXT", None, 0),
        ("version", "INTEGER", "1", 0),
    ],
    "session_state": [
        ("key", "TEXT", None, 1),
        ("value", "TEXT", None, 0),
        ("updated_at", "DATETIME", "CURRENT_TIMESTAMP", 0),
    ],
}


@pytest.fixture
def database():
    connection = sqlite3.connect(":memory:")
    connection.executescript(SCHEMA.read_text())
    yield connection
    connection.close()


@pytest.mark.parametrize("table", REFERENCE)
def test_the_table_has_exactly_the_reference_columns(database, table):
    info = database.execute(f"PRAGMA table_info({table})").fetchall()
    assert [(name, kind, default, key) for _, name, kind, _, default, key in info] == REFERENCE[table]


def test_row_ids_are_never_used_again(database):
    sequenced = database.execute("SELECT sql FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%'").fetchall()
    assert len([sql for (sql,) in sequenced if "execution_logs" in sql or "file_registry" in sql]) == 2


def test_a_file_path_is_registered_once(database):
    database.execute("INSERT INTO file_registry (file_path) VALUES ('notes/a.md')")
    with pytest.raises(sqlite3.IntegrityError):
        database.execute("INSERT INTO file_registry (file_path) VALUES ('notes/a.md')")


def test_what_we_add_has_tables_of_its_own(database):
    names = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert names - {"sqlite_sequence"} == {*REFERENCE, "api_requests", "prompts", "workspace_files"}
