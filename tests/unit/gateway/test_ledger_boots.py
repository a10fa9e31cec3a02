"""TESTS: the guest's boot: rows of one that the host did not announce are refused, until it does."""

from __future__ import annotations

import json

import pytest

from labkit.gateway.ledger import ForeignRun, Ledger


def push(ledger: Ledger, *rows: dict) -> int:
    return ledger.accept({"run_id": ledger.run_id, "events": list(rows)}).watermark


def refusals(folder) -> list[dict]:
    records = [json.loads(line) for line in (folder / "ledger.jsonl").read_bytes().splitlines()]
    return [record["body"] for record in records if record["kind"] == "refused"]


@pytest.fixture
def started(event):
    def row(number: int = 1, **facts: object) -> dict:
        said = json.dumps({"nonce": "n", **facts})
        return event(number, event_type="RUN_STARTED", sanitized_output=said)

    return row


@pytest.fixture
def resumed(event):
    def row(number: int, said: str) -> dict:
        return event(number, event_type="RESUMED", sanitized_output=said)

    return row


@pytest.mark.parametrize("facts", [{"boot_id": "old"}, {"boot_id": ""}, {"boot_id": None}, {}])
def test_a_start_in_another_boot_than_the_host_saw_is_refused_whole_and_told(tmp_path, event, started, facts):
    ledger = Ledger(tmp_path, "r", "n", "b1")
    with pytest.raises(ForeignRun, match="event 1 belongs to another boot of run r"):
        push(ledger, started(**facts), event(2))
    assert ledger.watermark == 0
    assert [body["why"] for body in refusals(tmp_path)] == ["another boot"]
    assert push(ledger, started(boot_id="b1"), event(2)) == 2


@pytest.mark.parametrize("said", ["goes on; boot old", "goes on; boot unknown", "", "b1"])
def test_a_session_that_goes_on_in_an_unseen_boot_is_refused(tmp_path, started, resumed, said):
    ledger = Ledger(tmp_path, "r", "n", "b1")
    push(ledger, started(boot_id="b1"))
    with pytest.raises(ForeignRun, match="another boot"):
        push(ledger, resumed(2, said))
    assert push(ledger, resumed(2, "goes on after step 3; boot b1")) == 2


def test_what_was_refused_is_taken_once_the_host_announces_that_boot(tmp_path, started, resumed):
    """Also what the guest had recorded before it went down, and could not push until now."""
    ledger = Ledger(tmp_path, "r", "n", "b1")
    rows = [started(boot_id="b1"), resumed(2, "goes on after step 3; boot b2")]
    with pytest.raises(ForeignRun):
        push(ledger, *rows)
    ledger.close()
    again = Ledger(tmp_path, "r", "n", "b2")
    assert push(again, *rows) == 2
    again.close()
    assert push(Ledger(tmp_path, "r", "n", "b2"), *rows) == 2, "and a restart forgets none of them"


@pytest.mark.parametrize("boots", [[""], ["", "b1"], ["b1", ""]])
def test_where_the_host_knew_one_boot_less_no_row_is_held_against_them(tmp_path, started, boots):
    """A gateway by hand, or a run that an earlier kit began: the ledger says that it is not known."""
    for boot in boots:
        ledger = Ledger(tmp_path, "r", "n", boot)
        ledger.close()
    ledger = Ledger(tmp_path, "r", "n", boots[-1])
    bodies = [json.loads(line)["body"] for line in (tmp_path / "ledger.jsonl").read_bytes().splitlines()]
    said = [body["boot_id"] for body in bodies if "boot_id" in body]
    assert said[: len(boots)] == [boot or None for boot in boots]
    assert push(ledger, started(boot_id="whatever")) == 1
