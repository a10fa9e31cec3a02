"""TESTS: a push as its bytes: however it is written, the same rows are held, one line each."""

from __future__ import annotations

import json

import pytest

from labkit.gateway import chain, views
from labkit.gateway.ledger import Ledger
from labkit.gateway.rows import BadEvents

NASTY = [
    'quotes "}, {"id": 7, "x": "\\\\" }]}',
    "tabs\tand\r\nbreaks \x00 \x1b[31m",
    "snow ☃ \u2028 \ud800 \U0001f600",
    "ends in a backslash \\",
    "",
]
WAYS = {
    "as the harness writes": json.dumps,
    "compact": lambda push: json.dumps(push, separators=(",", ":")),
    "in many lines": lambda push: json.dumps(push, indent=1),
    "with tabs": lambda push: json.dumps(push).replace('", "', '",\t"', 3),
    "with spaces in front": lambda push: "  " + json.dumps(push) + "\n",
    "rows first": lambda push: json.dumps(dict(reversed(push.items()))),
    "not as ASCII": lambda push: json.dumps(push, ensure_ascii=False),
}


def raw_of(write, *rows: dict) -> bytes:
    return write({"run_id": "r", "events": list(rows)}).encode("utf-8", "surrogatepass")


def bodies(folder) -> list[dict]:
    records = [json.loads(line) for line in (folder / "ledger.jsonl").read_bytes().splitlines()]
    return [record["body"] for record in records if record["kind"] == "event"]


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path, "r")
    yield ledger
    ledger.close()


@pytest.mark.parametrize("way", WAYS)
def test_the_same_rows_are_held_however_the_push_is_written(ledger, tmp_path, event, way):
    texts = [text for text in NASTY if way != "not as ASCII" or "\ud800" not in text]
    rows = [event(n, sanitized_output=text, elapsed_seconds=0.1 + n) for n, text in enumerate(texts, start=1)]
    assert ledger.accept(raw_of(WAYS[way], *rows)) == (len(rows), [])
    assert bodies(tmp_path) == rows
    held = (tmp_path / "events.jsonl").read_bytes()
    assert [json.loads(line) for line in held.splitlines()] == rows and held.isascii()
    views.heal(tmp_path)
    assert (tmp_path / "events.jsonl").read_bytes() == held, "made anew it is the same"
    assert Ledger(tmp_path, "r")._chain.broken == ""


@pytest.mark.parametrize("way", WAYS)
def test_a_row_written_otherwise_is_no_conflict_and_one_that_says_otherwise_is(ledger, event, way):
    ledger.accept(raw_of(json.dumps, event(1), event(2)))
    assert ledger.accept(raw_of(WAYS[way], event(1), event(2))) == (2, [])
    assert ledger.accept(raw_of(WAYS[way], event(1), event(2, step_number=77))) == (2, [2])
    assert ledger.accept(raw_of(WAYS[way], event(2, step_number=1.0), event(3))) == (3, [2])


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b'{"run_id": "r", "events": [',
        b'{"run_id": "r", "events": [{}]}',
        b'{"run_id": "r", "events": [5]}',
        b'{"run_id": "r", "events": 5}',
        b'{"run_id": "r", "events": [] } x',
        b'{"run_id": "r", "events": [' + b"[" * 100_000 + b"]}",
        b'{"run_id": "r", "events": [' + b"9" * 5000 + b"]}",
        b"\xff",
    ],
)
def test_what_is_no_push_is_told_and_holds_nothing(ledger, tmp_path, raw):
    with pytest.raises(BadEvents):
        ledger.accept(raw)
    assert (ledger.watermark, bodies(tmp_path)) == (0, [])


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "-Infinity", "1e999", "9223372036854775808", "[]", '{"a": "b"}']
)
def test_what_sqlite_cannot_hold_is_refused_with_its_batch(ledger, event, value):
    rows = json.dumps([event(1), event(2, cost_usd="HERE")]).replace('"HERE"', value)
    with pytest.raises(BadEvents, match="event 2"):
        ledger.accept(f'{{"run_id": "r", "events": {rows}}}'.encode())
    assert ledger.watermark == 0


def test_of_a_name_that_stands_twice_the_last_counts_everywhere(ledger, tmp_path, event):
    raw = raw_of(json.dumps, event(1)).replace(b'"phase": ', b'"phase": "FIRST", "phase": ')
    assert raw.count(b'"phase"') == 2
    ledger.accept(raw)
    assert bodies(tmp_path) == [event(1)] and ledger.accept(raw_of(json.dumps, event(1))) == (1, [])


def test_a_line_gives_its_body_as_it_came(ledger, tmp_path, event):
    text = json.dumps(event(1)).encode()
    ledger.accept(b'{"run_id": "r", "events": [' + text + b"]}")
    line = (tmp_path / "ledger.jsonl").read_bytes().splitlines(keepends=True)[-1]
    assert chain.text_in(line) == text
    assert chain.text_in(b'{"n":1}\n') is None
