"""TESTS: one record after the other taken out, changed, moved, put in between; each tail cut.

Every record with LAB_TEST_SOAK=1, else some of them; the kinds of event are gone through one by one in
test_verify_tampering.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from test_verify_tampering import BOTH, COLUMNS, relinked, shift

from labkit.gateway import chain

SOAK = bool(os.environ.get("LAB_TEST_SOAK"))
SOME = 6


def chosen(count: int) -> Iterator[int]:
    """1 to count: all, or some at even distances, the first and the last among them."""
    some = {1 + round(n * (count - 1) / (SOME - 1)) for n in range(SOME)}
    return iter(range(1, count + 1) if SOAK else sorted(some))


class Bench:
    """A copy that is put back after each try."""

    def __init__(self, copy, names: list[str]) -> None:
        self.copy, self.names = copy, names
        self.kept = {name: (copy.folder / name).read_bytes() for name in [*names, "summary.json"]}

    def first(self, change: Callable[[], None]) -> tuple[str, str]:
        for name, data in self.kept.items():
            (self.copy.folder / name).write_bytes(data)
        change()
        self.copy.seal()
        report = self.copy.examine()
        return (report.first.kind, report.first.record) if report.first else ("", "")

    def sql(self, *statements: str) -> None:
        for name in self.names:
            self.copy.sql(*statements, database=name)


@pytest.fixture
def record(copy) -> Bench:
    return Bench(copy, list(BOTH))


@pytest.fixture
def rows(copy) -> int:
    return copy.ask("SELECT MAX(id) FROM execution_logs")[0][0]


def test_each_row_that_is_taken_out(record, rows):
    for number in chosen(rows):
        kind = "truncated" if number == rows else "missing"
        out = f"DELETE FROM execution_logs WHERE id = {number}"
        assert record.first(lambda out=out: record.sql(out)) == (kind, f"event {number}")


def test_each_row_that_is_taken_out_with_the_ids_closed_up(record, rows):
    for number in chosen(rows - 1):

        def close_up(number=number) -> None:
            record.sql(f"DELETE FROM execution_logs WHERE id = {number}")
            shift(record.copy, number, -1)

        assert record.first(close_up) == ("missing", f"event {number}")


@pytest.mark.parametrize("change", ["sanitized_output = 'x'", "elapsed_seconds = 0.125", "cost_usd = 77"])
def test_each_row_that_is_changed(record, rows, change):
    for number in chosen(rows):
        sql = f"UPDATE execution_logs SET {change} WHERE id = {number}"
        assert record.first(lambda sql=sql: record.sql(sql)) == ("altered", f"event {number}")


def test_each_row_that_changed_places_with_the_next(record, rows):
    for number in chosen(rows - 1):
        swap = (
            f"UPDATE execution_logs SET id = -1 WHERE id = {number}",
            f"UPDATE execution_logs SET id = {number} WHERE id = {number + 1}",
            f"UPDATE execution_logs SET id = {number + 1} WHERE id = -1",
        )
        assert record.first(lambda swap=swap: record.sql(*swap)) == ("altered", f"event {number}")


def test_behind_each_row_one_that_is_put_in(record, rows):
    values = COLUMNS.replace("sanitized_output", "'made up'")
    for number in chosen(rows):

        def put(number=number) -> None:
            shift(record.copy, number, 1)
            what = f"SELECT {number + 1}, {values} FROM execution_logs WHERE id = {number}"
            record.sql(f"INSERT INTO execution_logs (id, {COLUMNS}) {what}")

        assert record.first(put) == ("forged", f"event {number + 1}")


def test_each_tail_of_the_record_that_is_cut(record, rows):
    for number in chosen(rows):
        cut = f"DELETE FROM execution_logs WHERE id >= {number}"
        kind = record.first(lambda cut=cut: record.sql(cut))
        assert kind == ("truncated", f"event {number}")


@pytest.mark.parametrize(
    "change", ["DELETE FROM execution_logs WHERE", "UPDATE execution_logs SET phase = 'x' WHERE"]
)
def test_each_row_of_the_mirror_alone(copy, rows, change):
    mirror = Bench(copy, ["mirror.db"])
    for number in chosen(rows):
        kind, what = mirror.first(lambda sql=f"{change} id = {number}": mirror.sql(sql))
        wanted = ("altered",) if change.startswith("UPDATE") else ("missing", "truncated")
        assert kind in wanted and str(number) in what, (number, kind, what)


@pytest.fixture
def ledger(copy) -> Bench:
    return Bench(copy, ["gateway/ledger.jsonl"])


def test_each_line_of_the_ledger(ledger):
    copy = ledger.copy
    lines = copy.lines("ledger.jsonl")
    last = len(lines)
    for n in chosen(last):
        before, line, after = lines[: n - 1], lines[n - 1], lines[n:]
        changes = {
            "out": [*before, *after],
            "altered": [*before, line.replace(b'"at":"2', b'"at":"3', 1), *after],
            "swapped": [*before, *after[:1], line, *after[1:]],
            "put in": [*before, line, line.replace(b'"at":"2', b'"at":"3', 1), *after],
            "tail": before,
        }
        first = {
            name: ledger.first(lambda told=told: copy.put("ledger.jsonl", told))
            for name, told in changes.items()
        }
        assert first["out"] == ("truncated" if n == last else "missing", f"line {n}")
        assert first["altered"] == ("altered", f"line {n}")
        assert first["put in"][0] == "forged" and first["put in"][1] in (f"line {n}", f"line {n + 1}")
        if n < last:
            assert first["swapped"] == ("altered", f"line {n}")
        assert first["tail"][0] == "truncated"


def test_each_line_of_the_ledger_with_the_chain_made_whole_again(ledger):
    """The forger relinks the lines; the head in the manifest, or what was made from the ledger, tells."""
    copy = ledger.copy
    records = copy.records()
    for n in chosen(len(records)):
        rest = [*records[: n - 1], *records[n:]]
        kind, _ = ledger.first(lambda rest=rest: copy.put("ledger.jsonl", relinked(rest)))
        assert kind in ("truncated", "missing", "altered"), (n, kind)
        assert chain.end_of(copy.folder / "gateway").n == len(records) - 1


def test_an_untouched_copy_is_accused_of_nothing(record, ledger):
    assert record.first(lambda: None) == ledger.first(lambda: None) == ("", "")
