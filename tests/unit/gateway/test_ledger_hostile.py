"""TESTS: a guest gone wild at the ledger: what its pushes may cost this host in reading, disk and log."""

from __future__ import annotations

import json

import pytest

from labkit.gateway.ledger import Answer, Ledger
from labkit.gateway.rows import BadEvents


def push(ledger: Ledger, *rows: dict) -> Answer:
    return ledger.accept({"run_id": ledger.run_id, "events": list(rows)})


def test_a_row_that_comes_again_is_judged_without_reading_the_held_one(tmp_path, event):
    """A push has room for 60,000 short rows under the id of one that is 19 MB long."""
    ledger = Ledger(tmp_path, "r")
    push(ledger, event(1, sanitized_output="x" * 100_000))
    (tmp_path / "ledger.jsonl").write_bytes(b"")  # nothing is left to be read
    assert push(ledger, event(1, sanitized_output="x" * 100_000)) == (1, [])
    assert push(ledger, *[event(1, step_number=n) for n in range(50)]) == (1, [1])


def test_a_gateway_that_starts_again_knows_what_its_held_rows_say(tmp_path, event):
    ledger = Ledger(tmp_path, "r")
    push(ledger, event(1, sanitized_output="a"), event(2, elapsed_seconds=1.0))
    ledger.close()
    again = Ledger(tmp_path, "r")
    assert push(again, event(1, sanitized_output="a"), event(2, elapsed_seconds=1.0)) == (2, [])
    assert push(again, event(1, sanitized_output="b"), event(2, elapsed_seconds=1)) == (2, [1, 2])


def records(folder, kind: str) -> list[dict]:
    lines = map(json.loads, (folder / "ledger.jsonl").read_bytes().splitlines())
    return [line["body"] for line in lines if line["kind"] == kind]


def test_of_a_conflict_the_ledger_keeps_what_names_it_and_its_beginning(tmp_path, event):
    ledger = Ledger(tmp_path, "r")
    push(ledger, event(1))
    size = (tmp_path / "ledger.jsonl").stat().st_size
    assert push(ledger, event(1, phase="other", sanitized_output="а" * 1_000_000)) == (1, [1])
    (conflict,) = records(tmp_path, "conflict")
    assert conflict["id"] == 1 and '"phase":"other"' in conflict["text"] and len(conflict["digest"]) == 24
    assert (tmp_path / "ledger.jsonl").stat().st_size - size < 4096


def test_a_conflict_is_written_down_once_also_over_a_restart(tmp_path, event):
    for _ in range(2):
        ledger = Ledger(tmp_path, "r")
        assert push(ledger, event(1)).watermark == 1
        assert push(ledger, event(1, phase="other")).conflicts == [1]
        ledger.close()
    assert len(records(tmp_path, "conflict")) == 1


def test_a_conflict_that_an_earlier_kit_wrote_down_whole_is_known(tmp_path, event):
    ledger = Ledger(tmp_path, "r")
    push(ledger, event(1))
    ledger.note("conflict", **event(1, phase="other"))
    ledger.close()
    assert push(Ledger(tmp_path, "r"), event(1, phase="other")) == (1, [1])
    assert len(records(tmp_path, "conflict")) == 1


def test_a_full_ledger_takes_no_conflicts_either(tmp_path, event, monkeypatch):
    ledger = Ledger(tmp_path, "r")
    push(ledger, event(1))
    size = (tmp_path / "ledger.jsonl").stat().st_size
    monkeypatch.setattr("labkit.gateway.ledger.MAX_BYTES", size)
    with pytest.raises(OSError, match="has reached"):
        push(ledger, event(1, phase="other"))
    assert push(ledger, event(1)) == (1, []), "what is held is still told"
    assert (tmp_path / "ledger.jsonl").stat().st_size == size


def test_one_push_does_not_carry_the_ledger_past_its_end(tmp_path, event, monkeypatch):
    """Of a letter beyond ASCII the ledger has three times the bytes that came."""
    ledger = Ledger(tmp_path, "r")
    monkeypatch.setattr("labkit.gateway.ledger.MAX_BYTES", 100_000)
    body = json.dumps({"run_id": "r", "events": [event(1, phase="а" * 20_000)]}, ensure_ascii=False)
    with pytest.raises(OSError, match="has reached"):
        ledger.accept(body.encode())
    assert push(ledger, event(1)) == (1, [])


@pytest.mark.parametrize(
    "odd",
    [
        {"id": "7" * 1_000_000},
        {"id": ["deep"] * 100_000},
        {"x" * 1_000_000: 1},
        {f"column {n}": n for n in range(10_000)},
        {"a line\nof another's log": 1},
    ],
    ids=["a long id", "a list as id", "a long name", "many names", "a name with a break"],
)
def test_what_is_said_of_a_bad_row_is_one_short_line(tmp_path, event, odd):
    with pytest.raises(BadEvents) as said:
        push(Ledger(tmp_path, "r"), event(1) | odd)
    assert len(str(said.value)) < 400 and "\n" not in str(said.value)
