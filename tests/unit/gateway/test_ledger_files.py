"""TESTS: the append-only files behind the gateway, without a process around them."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from labkit.gateway import commands
from labkit.gateway.files import JsonLines, read_lines
from labkit.gateway.ledger import EventTail, Ledger


def push(ledger: Ledger, *rows: dict) -> int:
    return ledger.accept({"run_id": ledger.run_id, "events": list(rows)})


@pytest.mark.parametrize("torn", [b'{"id": 3, "event_ty', b"\x00\x00", b"{}" * 70_000])
def test_a_torn_last_line_is_dropped_and_asked_for_again(tmp_path, event, torn):
    ledger = Ledger(tmp_path, "r")
    push(ledger, event(1), event(2))
    ledger.close()
    with open(tmp_path / "events.jsonl", "ab") as file:
        file.write(torn)
    again = Ledger(tmp_path, "r")
    assert again.watermark == 2
    assert push(again, event(3)) == 3
    assert [row["id"] for row in read_lines(tmp_path / "events.jsonl")] == [1, 2, 3]


def test_the_same_id_twice_in_one_batch_is_held_once(tmp_path, event):
    assert push(Ledger(tmp_path, "r"), event(1), event(1)) == 1
    assert len(list(read_lines(tmp_path / "events.jsonl"))) == 1


def test_a_sealed_run_is_known_as_sealed_after_a_restart(tmp_path, event):
    push(Ledger(tmp_path, "r"), event(1, event_type="RUN_SEALED", sanitized_output="{}"))
    assert Ledger(tmp_path, "r").sealed_at is not None


def test_a_reader_follows_the_file_and_waits_for_the_end_of_a_line(tmp_path, event):
    tail = EventTail(tmp_path)
    assert tail.poll() == []
    line = json.dumps(event(1)).encode()
    with open(tmp_path / "events.jsonl", "ab", buffering=0) as file:
        file.write(line[:10])
        assert tail.poll() == []
        file.write(line[10:] + b"\n")
    assert tail.poll() == [event(1)]
    assert tail.poll() == []


def test_the_files_are_private(tmp_path):
    JsonLines(tmp_path / "x.jsonl").close()
    assert (tmp_path / "x.jsonl").stat().st_mode & 0o077 == 0


def test_commands_given_at_once_get_ids_of_their_own(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        ids = list(pool.map(lambda _: commands.append(tmp_path, "finish"), range(12)))
    assert sorted(ids) == list(range(1, 13))
    assert [command["id"] for command in commands.after(tmp_path, 10)] == [11, 12]
