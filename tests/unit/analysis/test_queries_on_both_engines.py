"""TESTS: each of the seven .sql files gives the same rows on SQLite and on DuckDB."""

import random
import sqlite3

import pytest
import synthetic_run

from labkit.analysis import load, questions

ODD = [
    (None, None, None, None, None, None, None, None),
    (-0.5, None, "TOOL_CALL", None, "ALLOW", -3, 2, -0.25),
    (-60.0, "EXPLORATION", "TOOL_CALL", "read_file", None, None, None, 0.0),
    (89.999999, "EXPLORATION", "TOOL_CALL", "read_file", "BLOCK", 7, None, 1e-9),
    (90.0, "DEVELOPMENT", None, "browser_fetch", "BLOCK", 2**40, 2**40, None),
    (150, "development", "TOOL_CALL", "", "", 0, 0, 3),
    (1e9, "SYNTHESIS", "TOOL_RESULT", "execute_shell", "BYPASS", 1, 1, 0.1),
    (30.3, "FINAL_REPORT", "Ärger", "ünïcode", "NULL", 5, 5, 0.2),
]
COLUMNS = (
    "elapsed_seconds, phase, event_type, tool_name, guard_status, prompt_tokens, completion_tokens, cost_usd"
)


def odd_rows():
    """The odd ones, then random mixtures of their values: halves, negatives and NULLs meet each other."""
    mixed = random.Random(7)
    columns = list(zip(*ODD, strict=True))
    return [*ODD, *(tuple(mixed.choice(column) for column in columns) for _ in range(400))]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("both") / "run.db"
    synthetic_run.database(path, steps=20)
    connection = sqlite3.connect(path)
    connection.executemany(f"INSERT INTO execution_logs ({COLUMNS}) VALUES (?,?,?,?,?,?,?,?)", odd_rows())
    connection.executemany(
        "INSERT INTO file_registry (file_path, file_type) VALUES (?, ?)",
        [("a", None), ("b", None), ("c", "SCRIPT"), ("d", "script"), (None, "SCRIPT")],
    )
    connection.commit()
    connection.close()
    return path


def rows(path, name):
    connection = sqlite3.connect(path)
    in_sqlite = connection.execute(questions.load(name).sql).fetchall()
    connection.close()
    return in_sqlite, load.query(path, name).rows


@pytest.mark.parametrize("name", questions.names())
def test_both_engines_give_the_same_rows_in_the_same_order(path, name):
    in_sqlite, in_duckdb = rows(path, name)
    assert len(in_sqlite) > 1
    assert len(in_duckdb) == len(in_sqlite)
    for ours, theirs in zip(in_duckdb, in_sqlite, strict=True):
        assert list(map(about, ours)) == list(map(about, theirs))


def about(value):
    """The engines add up in different orders: floats are held equal to 12 digits."""
    return float(f"{value:.12g}") if isinstance(value, float) else value


@pytest.mark.parametrize("name", questions.names())
def test_both_engines_give_the_same_column_names(path, name):
    connection = sqlite3.connect(path)
    names = [column[0] for column in connection.execute(questions.load(name).sql).description]
    connection.close()
    assert load.query(path, name).columns == names


def test_half_a_minute_before_the_start_is_minute_minus_one(path):
    (in_sqlite, in_duckdb) = rows(path, "activity_over_time")
    for answer in (in_sqlite, in_duckdb):
        minutes = [row[0] for row in answer]
        assert -1 in minutes and 1 in minutes and minutes[-1] is None


@pytest.mark.parametrize("name", questions.names())
def test_an_empty_record_has_an_empty_answer(tmp_path, name):
    connection = sqlite3.connect(tmp_path / "run.db")
    connection.executescript(synthetic_run.SCHEMA.read_text())
    connection.close()
    assert load.query(tmp_path, name).rows == []


@pytest.mark.parametrize("name", questions.names())
def test_each_file_opens_with_its_question(name):
    question = questions.load(name)
    assert question.sql.startswith("-- ")
    assert question.sentence.endswith("?")
    assert "CAST" not in question.sql.upper()


def test_the_seven_questions_are_all_there():
    assert questions.names()[:7] == list(questions.SEVEN)
