"""TESTS: each row taken out, changed, moved, one put in behind it; each tail cut. None is passed over."""

from __future__ import annotations

import pytest
from test_verify_tampering import BOTH, COLUMNS, shift

pytestmark = pytest.mark.slow
NAMES = COLUMNS.split(", ")


@pytest.fixture
def record(bench):
    return bench(*BOTH)


@pytest.fixture
def rows(record) -> int:
    held = record.copy.ask("SELECT MAX(id) FROM execution_logs")[0][0]
    assert held > 80, "a session that has some of everything"
    return held


def test_each_row_that_is_taken_out(record, rows):
    for number in range(1, rows + 1):
        kind = "truncated" if number == rows else "missing"
        out = f"DELETE FROM execution_logs WHERE id = {number}"
        assert record.first(lambda out=out: record.sql(out)) == (kind, f"event {number}")


def test_each_row_that_is_taken_out_with_the_ids_closed_up(record, rows):
    for number in range(1, rows):

        def close_up(number=number) -> None:
            record.sql(f"DELETE FROM execution_logs WHERE id = {number}")
            shift(record.copy, number, -1)

        assert record.first(close_up) == ("missing", f"event {number}")


def test_each_row_that_is_changed_each_column_in_turn(record, rows):
    for number in range(1, rows + 1):
        sql = f"UPDATE execution_logs SET {NAMES[number % len(NAMES)]} = 77.5 WHERE id = {number}"
        assert record.first(lambda sql=sql: record.sql(sql)) == ("altered", f"event {number}"), sql


@pytest.mark.parametrize("change", ["sanitized_output = 'x'", "elapsed_seconds = 0.125"])
def test_each_row_that_is_changed(record, rows, change):
    for number in range(1, rows + 1):
        sql = f"UPDATE execution_logs SET {change} WHERE id = {number}"
        assert record.first(lambda sql=sql: record.sql(sql)) == ("altered", f"event {number}")


def test_each_row_that_changed_places_with_the_next(record, rows):
    for number in range(1, rows):
        swap = (
            f"UPDATE execution_logs SET id = -1 WHERE id = {number}",
            f"UPDATE execution_logs SET id = {number} WHERE id = {number + 1}",
            f"UPDATE execution_logs SET id = {number + 1} WHERE id = -1",
        )
        assert record.first(lambda swap=swap: record.sql(*swap)) == ("altered", f"event {number}")


def test_behind_each_row_one_that_is_put_in(record, rows):
    values = COLUMNS.replace("sanitized_output", "'made up'")
    for number in range(1, rows + 1):

        def put(number=number) -> None:
            shift(record.copy, number, 1)
            what = f"SELECT {number + 1}, {values} FROM execution_logs WHERE id = {number}"
            record.sql(f"INSERT INTO execution_logs (id, {COLUMNS}) {what}")

        assert record.first(put) == ("forged", f"event {number + 1}")


def test_each_tail_of_the_record_that_is_cut(record, rows):
    for number in range(1, rows + 1):
        cut = f"DELETE FROM execution_logs WHERE id >= {number}"
        assert record.first(lambda cut=cut: record.sql(cut)) == ("truncated", f"event {number}")


@pytest.mark.parametrize(
    "change", ["DELETE FROM execution_logs WHERE", "UPDATE execution_logs SET phase = 'x' WHERE"]
)
def test_each_row_of_the_mirror_alone(bench, rows, change):
    mirror = bench("mirror.db")
    for number in range(1, rows + 1):
        kind, what = mirror.first(lambda sql=f"{change} id = {number}": mirror.sql(sql))
        wanted = ("altered",) if change.startswith("UPDATE") else ("missing", "truncated")
        assert kind in wanted and str(number) in what, (number, kind, what)


def test_an_untouched_copy_is_accused_of_nothing(record):
    assert record.first(lambda: None) == ("", "")
