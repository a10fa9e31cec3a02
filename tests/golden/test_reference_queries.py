"""TESTS: the reference run's own SQL, byte for byte, against a run.db of ours."""

import sqlite3
from pathlib import Path

import pytest
import synthetic_run

SQL = [
    part for part in (Path(__file__).parent / "reference_queries.sql").read_text().split(";") if part.strip()
]


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    path = tmp_path_factory.mktemp("golden") / "run.db"
    counts = synthetic_run.database(path)
    connection = sqlite3.connect(path)
    yield [connection.execute(sql).fetchall() for sql in SQL], counts
    connection.close()


def test_there_are_seven_questions(answers):
    assert len(answers[0]) == 7


def test_activity_counts_every_event_in_its_minute_and_phase(answers):
    (activity, *_), counts = answers
    assert sum(row[2] for row in activity) == sum(counts.events.values())
    assert [row[0] for row in activity] == sorted(row[0] for row in activity)
    assert {type(row[0]) for row in activity} == {int}
    assert {row[1] for row in activity} == {name for name, _ in synthetic_run.PHASES}


def test_cumulative_cost_ends_at_what_the_run_cost(answers):
    (_, cost, *_), counts = answers
    assert cost[-1][2] == pytest.approx(counts.cost)
    assert [row[2] for row in cost] == sorted(row[2] for row in cost)


def test_tokens_come_by_phase_in_the_order_of_the_run(answers):
    (_, _, tokens, *_), counts = answers
    assert [row[0] for row in tokens] == [name for name, _ in synthetic_run.PHASES]
    assert {row[0]: row[1] for row in tokens} == dict(counts.prompt)
    assert all(row[3] < row[1] for row in tokens)


@pytest.mark.parametrize(("number", "kind"), [(3, "gate"), (4, "tools"), (5, "events"), (6, "files")])
def test_counts_are_those_of_the_rows_written_largest_first(answers, number, kind):
    rows, counts = answers[0][number], answers[1]
    assert dict(rows) == dict(getattr(counts, kind))
    assert [row[1] for row in rows] == sorted((row[1] for row in rows), reverse=True)
