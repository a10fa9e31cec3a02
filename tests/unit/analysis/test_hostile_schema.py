"""TESTS: a database that computes something of its own is refused before any of it is computed."""

import contextlib
import sqlite3

import pytest
import synthetic_run

from labkit import record_facts, salvage
from labkit.analysis import load, sqlite_file, sqlite_guard
from labkit.errors import EVIDENCE, LabError
from labkit.verification import evidence

HUGE = "max(hex(zeroblob(20000000)), hex(zeroblob(20000000)))"
HOSTILE = {
    "virtual column": f"CREATE TABLE prompts (name TEXT, content TEXT GENERATED ALWAYS AS ({HUGE}) VIRTUAL)",
    "stored column": "CREATE TABLE prompts (name TEXT, content TEXT AS (upper(name)) STORED)",
    "behind a comment": f"CREATE TABLE prompts (name TEXT, content TEXT aS /* a * b **/ -- x\n\t({HUGE}))",
    "in a table of its own": f"CREATE TABLE other (name TEXT, content TEXT AS ({HUGE}))",
    "index on an expression": "CREATE INDEX odd ON session_state (instr(value, key))",
    "index on a part": "CREATE INDEX odd ON session_state (key) WHERE value LIKE '%a%'",
    "index without parentheses": "CREATE INDEX odd ON session_state (key || value)",
}


def database(path, *statements, rows=()):
    synthetic_run.database(path, steps=3)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            if " TABLE prompts" in statement:
                connection.execute("DROP TABLE prompts")
            connection.execute(statement)
        connection.executemany("INSERT INTO session_state (key, value) VALUES (?, ?)", rows)
        connection.commit()
    return path


@pytest.mark.parametrize("what", HOSTILE)
def test_what_a_file_would_compute_is_refused_wherever_it_is_read(tmp_path, what):
    path = database(tmp_path / "run.db", HOSTILE[what])
    with contextlib.closing(sqlite3.connect(path)) as connection, contextlib.suppress(sqlite3.Error):
        connection.execute("INSERT INTO prompts (name) VALUES ('worker')")
        connection.commit()
    assert "computes something" in sqlite_file.integrity(path)["integrity"]
    assert record_facts.prompts(path) == {}
    assert "computes something" in evidence.read(tmp_path).run.problem
    with pytest.raises(LabError, match="computes something") as caught:
        load.query(tmp_path, "event_types")
    assert caught.value.code == EVIDENCE


def test_a_dead_guests_database_that_computes_is_not_copied(tmp_path):
    database(tmp_path / "primary.db", HOSTILE["virtual column"])
    record = salvage.choose(tmp_path, tmp_path / "gateway")
    assert record.run_db is None and "computes something" in record.problems[0]


def test_checks_of_the_files_own_are_not_run(tmp_path):
    check = "CREATE TABLE checked (x, CHECK (x < 5))"
    path = database(tmp_path / "run.db", check, "PRAGMA ignore_check_constraints = ON")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("INSERT INTO checked VALUES (7)")
        connection.commit()
    assert sqlite_file.integrity(path)["integrity"] == "ok"


def test_plain_tables_indexes_and_views_are_read(tmp_path):
    plain = (
        'CREATE UNIQUE INDEX "odd one" ON session_state ("key" COLLATE NOCASE DESC, value)',
        "CREATE VIEW v AS SELECT upper(key) FROM (SELECT key FROM session_state)",
        "CREATE TABLE basic (has VARCHAR(3) DEFAULT 'as is', y CHECK (y IN ('as', 'was')))",
    )
    path = database(tmp_path / "run.db", *plain)
    assert sqlite_file.integrity(path)["integrity"] == "ok"


def test_a_value_that_no_harness_writes_makes_the_file_a_damaged_one(tmp_path):
    path = database(tmp_path / "run.db", rows=[("big", "x" * (sqlite_guard.VALUE_BYTES + 1))])
    assert "too big" in evidence.read(tmp_path).run.problem
    assert path.stat().st_size > sqlite_guard.VALUE_BYTES


def test_no_more_is_read_than_a_limit():
    rows = [("x" * 1000,)] * 10
    assert list(sqlite_guard.bounded(rows, 20_000)) == rows
    with pytest.raises(LabError, match="larger than"):
        list(sqlite_guard.bounded(rows, 5000))


def test_statements_of_a_hostile_file_end_in_time(tmp_path):
    path = database(tmp_path / "run.db", rows=[(str(n), "x") for n in range(300)])
    endless = "SELECT COUNT(*) FROM session_state a, session_state b, session_state c, session_state d"
    with (
        pytest.raises(LabError, match=r"not finished within 0\.2 s"),
        sqlite_file.opened(path, 0.2) as connection,
    ):
        connection.execute(endless).fetchone()


@pytest.mark.parametrize("number", [float("inf"), 2.5, "twelve", b"12"])
def test_a_dead_guests_ids_that_are_no_whole_numbers_are_a_problem_and_no_crash(tmp_path, number):
    path = database(tmp_path / "mirror.db")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "ALTER TABLE execution_logs RENAME TO old; CREATE TABLE execution_logs AS SELECT * FROM old"
        )
        connection.execute("UPDATE execution_logs SET id = ?", (number,))
        connection.commit()
    record = salvage.choose(tmp_path, tmp_path / "gateway")
    assert record.run_db is None and "no whole numbers" in record.problems[0]


def test_a_manifest_names_no_more_tables_than_a_person_reads(tmp_path):
    many = [f"CREATE TABLE t{n} (x)" for n in range(record_facts.MAX_TABLES)]
    found = record_facts.database(database(tmp_path / "run.db", *many))
    assert found["integrity"] == "ok" and len(found["tables"]) == record_facts.MAX_TABLES


def test_a_record_larger_than_a_querys_memory_is_refused_while_it_is_loaded(tmp_path, monkeypatch):
    database(tmp_path / "run.db", rows=[(str(n), "x" * 100_000) for n in range(300)])
    monkeypatch.setitem(load._AT_START, "memory_limit", "10MB")
    with pytest.raises(LabError, match="cannot be loaded"):
        load.query(tmp_path, "event_types")
