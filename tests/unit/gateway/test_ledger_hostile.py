"""TESTS: a guest gone wild at the ledger: what its pushes may cost this host in reading, disk and log."""

from __future__ import annotations

from labkit.gateway.ledger import Ledger


def push(ledger: Ledger, *rows: dict) -> tuple[int, list[int]]:
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
