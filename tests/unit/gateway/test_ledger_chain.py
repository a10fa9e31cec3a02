"""TESTS: the ledger's chain: what it takes, what it tells, what it survives."""

from __future__ import annotations

import errno
import hashlib
import json

import pytest

from labkit.gateway import chain, views
from labkit.gateway.files import JsonLines
from labkit.gateway.ledger import ForeignRun, Ledger


def push(ledger: Ledger, *rows: dict) -> int:
    return ledger.accept({"run_id": ledger.run_id, "events": list(rows)}).watermark


def lines(folder, name="ledger.jsonl") -> list[bytes]:
    return (folder / name).read_bytes().splitlines()


def kinds(folder) -> list[str]:
    return [json.loads(line)["kind"] for line in lines(folder)]


def test_each_line_names_the_hash_of_the_line_before(tmp_path, event):
    ledger = Ledger(tmp_path, "r", "n")
    push(ledger, event(1), event(2))
    ledger.exchange({"id": 1, "seen": {"text": "aa"}})
    ledger.close()
    prev = "0" * 64
    for number, line in enumerate(lines(tmp_path), start=1):
        record = json.loads(line)
        assert (record["n"], record["prev"]) == (number, prev)
        prev = hashlib.sha256(line).hexdigest()
    head = json.loads((tmp_path / "ledger.head").read_text())
    assert (head["n"], head["sha256"]) == (number, prev)
    assert vars(chain.end_of(tmp_path)) == {"n": number, "sha256": prev}


def test_the_first_record_names_run_nonce_and_boot_and_each_start_is_one_more(tmp_path):
    for boot in ("b1", "b2"):
        Ledger(tmp_path, "r", "n", boot).close()
    records = [json.loads(line) for line in lines(tmp_path)]
    assert records[0]["body"] == {"run_id": "r", "nonce": "n", "boot_id": "b1"}
    assert records[2]["body"] == {"run_id": "r", "nonce": "n", "boot_id": "b2"}
    assert kinds(tmp_path) == ["opened", "stopped", "started", "stopped"]


def test_a_row_that_comes_again_with_other_content_is_a_conflict_and_told(tmp_path, event):
    ledger = Ledger(tmp_path, "r")
    push(ledger, event(1), event(2))
    again = {"run_id": "r", "events": [event(1), event(2, phase="other"), event(3)]}
    assert ledger.accept(again) == (3, [2])
    assert ledger.accept(again) == (3, [2])
    assert kinds(tmp_path) == ["opened", "event", "event", "event", "conflict"], "written down once"
    assert [json.loads(line)["id"] for line in lines(tmp_path, "events.jsonl")] == [1, 2, 3]


def test_a_conflict_inside_one_batch_keeps_the_first(tmp_path, event):
    ledger = Ledger(tmp_path, "r")
    payload = {"run_id": "r", "events": [event(1), event(1, phase="other")]}
    assert ledger.accept(payload) == (1, [1])


def test_a_guest_cannot_fill_the_ledger_with_conflicts(tmp_path, event, monkeypatch):
    monkeypatch.setattr("labkit.gateway.ledger.MAX_CONFLICTS", 5)
    ledger = Ledger(tmp_path, "r")
    push(ledger, event(1))
    for number in range(20):
        push(ledger, event(1, phase=f"p{number}"))
    assert kinds(tmp_path).count("conflict") == 5


def test_model_calls_that_cost_nothing_cannot_fill_the_hosts_disk(tmp_path, monkeypatch):
    ledger = Ledger(tmp_path, "r")
    ledger.reserve(1, {"id": 1})
    monkeypatch.setattr("labkit.gateway.ledger.MAX_BYTES", 100)
    with pytest.raises(OSError, match="has reached"):
        ledger.reserve(2, {"id": 2})
    ledger.exchange({"id": 1})  # what is under way is still written down
    assert kinds(tmp_path) == ["opened", "reserved", "exchange"]


@pytest.mark.parametrize("told", ["other", "", None])
def test_telemetry_of_another_start_is_refused_whole_and_told(tmp_path, event, told):
    ledger = Ledger(tmp_path, "r", "mine")
    said = json.dumps({"minutes": 1} if told is None else {"nonce": told})
    with pytest.raises(ForeignRun, match="another start"):
        push(ledger, event(1, event_type="RUN_STARTED", sanitized_output=said), event(2))
    assert (ledger.watermark, kinds(tmp_path)) == (0, ["opened", "refused"])
    said = json.dumps({"nonce": "mine"})
    assert push(ledger, event(1, event_type="RUN_STARTED", sanitized_output=said)) == 1


@pytest.mark.parametrize("torn", [b'{"n": 5, "ki', b"\x00\x00\x00", b"{}" * 70_000])
def test_a_half_written_last_line_is_healed_after_a_crash(tmp_path, event, torn):
    ledger = Ledger(tmp_path, "r")
    push(ledger, event(1), event(2))
    with open(tmp_path / "ledger.jsonl", "ab") as file:
        file.write(torn)
    again = Ledger(tmp_path, "r")
    assert again.watermark == 2 and push(again, event(3)) == 3
    assert Ledger(tmp_path, "r")._chain.broken == ""


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-20], lambda data: data + b"{}\n"])
def test_the_readable_files_are_written_anew_where_they_do_not_say_what_the_ledger_says(
    tmp_path, event, damage
):
    ledger = Ledger(tmp_path, "r")
    push(ledger, event(1), event(2))
    ledger.exchange({"id": 1, "seen": {}})
    whole = {name: (tmp_path / name).read_bytes() for name in ("events.jsonl", "requests.jsonl")}
    for name, data in whole.items():
        (tmp_path / name).write_bytes(damage(data))
    views.heal(tmp_path)
    assert whole == {name: (tmp_path / name).read_bytes() for name in whole}


def test_what_the_relay_keeps_for_verify_is_not_in_the_file_people_read(tmp_path):
    ledger = Ledger(tmp_path, "r")
    ledger.exchange({"id": 1, "purpose": "worker", "seen": {"text": "aa"}})
    assert json.loads(lines(tmp_path, "requests.jsonl")[0]) == {"id": 1, "purpose": "worker"}


def test_a_run_that_an_older_kit_began_is_taken_over_and_said_to_be_so(tmp_path, event):
    JsonLines(tmp_path / "events.jsonl").append([event(1), event(2)])
    JsonLines(tmp_path / "requests.jsonl").append([{"id": 1, "charged_usd": 0.5}])
    ledger = Ledger(tmp_path, "r")
    assert ledger.watermark == 2 and push(ledger, event(3)) == 3
    assert json.loads(lines(tmp_path)[0])["body"]["adopted"] == 3
    assert len(lines(tmp_path, "events.jsonl")) == 3 and len(lines(tmp_path, "requests.jsonl")) == 1


def test_a_ledger_that_lost_its_tail_says_so_when_it_goes_on(tmp_path, event):
    ledger = Ledger(tmp_path, "r")
    push(ledger, event(1), event(2))
    ledger.close()
    whole = (tmp_path / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "ledger.jsonl").write_bytes(b"".join(whole[:2]))
    Ledger(tmp_path, "r")
    assert "line 4 was there" in json.loads(lines(tmp_path)[-1])["body"]["broken"]


def test_a_disk_that_is_full_takes_nothing_half_and_loses_nothing_accepted(tmp_path, event, monkeypatch):
    """The file's own write fails, as on a full disk; what was accepted before stays."""
    ledger = Ledger(tmp_path, "r")
    push(ledger, event(1))
    real = ledger._chain._lines.append_bytes

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(ledger._chain._lines, "append_bytes", full)
    with pytest.raises(OSError, match="no space"):
        push(ledger, event(2), event(3))
    assert ledger.watermark == 1
    monkeypatch.setattr(ledger._chain._lines, "append_bytes", real)
    assert push(ledger, event(2), event(3)) == 3
    assert Ledger(tmp_path, "r")._chain.broken == ""
