"""TESTS: the append-only files behind the gateway, without a process around them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from labkit.gateway import commands
from labkit.gateway.events import EventTail, run_summary
from labkit.gateway.files import JsonLines, read_lines
from labkit.gateway.ledger import Ledger
from labkit.gateway.progress import Progress, event_line

ROOT = Path(__file__).parents[3]


def push(ledger: Ledger, *rows: dict) -> int:
    return ledger.accept({"run_id": ledger.run_id, "events": list(rows)}).watermark


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


@pytest.mark.parametrize("word", ["RUN_SEALED", "COMMAND", "TOOL_CALL"])
def test_a_row_nested_deeper_than_python_goes_stops_neither_ledger_nor_view(tmp_path, event, word):
    deep = "[" * 100_000
    ledger = Ledger(tmp_path, "r", "n")
    row = event(1, event_type=word, tool_name="write_script", command_or_input=deep, sanitized_output=deep)
    assert push(ledger, row) == 1
    ledger.close()
    assert Ledger(tmp_path, "r", "n").watermark == 1  # and no restart
    progress = Progress()
    progress.apply(row)
    assert progress.events == 1 and len(event_line(row)) < 100_000


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


def test_a_reader_of_a_long_file_holds_a_piece_of_it_at_a_time(tmp_path, event):
    long = [event(n, sanitized_output="x" * 1_000_000) for n in range(1, 25)]
    JsonLines(tmp_path / "events.jsonl").append([*long, event(25, event_type="RUN_SEALED")])
    tracemalloc.start()
    try:
        assert run_summary(EventTail(tmp_path).rows()) == {"status": "sealed"}
        assert tracemalloc.get_traced_memory()[1] < 12_000_000
    finally:
        tracemalloc.stop()
    tail = EventTail(tmp_path)
    polls = [[row["id"] for row in tail.poll()] for _ in range(3)]
    assert polls[0] + polls[1] == list(range(1, 26)) and all(polls[:2]) and polls[2] == []


def test_one_who_looks_for_a_row_goes_on_behind_it(tmp_path, event):
    JsonLines(tmp_path / "events.jsonl").append([event(1), event(2), event(3)])
    tail = EventTail(tmp_path)
    assert next(tail.rows()) == event(1)
    assert tail.poll() == [event(2), event(3)]


@pytest.mark.skipif(os.name != "posix", reason="limits the size of a file")
def test_a_disk_that_takes_no_more_keeps_what_was_accepted_and_not_half_a_batch(tmp_path):
    code = """if True:
        import resource, sys
        from pathlib import Path
        from labkit.gateway.files import JsonLines
        lines = JsonLines(Path(sys.argv[1]))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            for n in range(100):
                lines.append([{"id": n, "half": 1}, {"id": n, "half": 2}])
        except OSError:
            print(n)
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, str(tmp_path / "x.jsonl")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    accepted = int(done.stdout)
    assert 0 < accepted < 100
    assert len((tmp_path / "x.jsonl").read_text().splitlines()) == 2 * accepted


def test_the_files_are_private(tmp_path):
    JsonLines(tmp_path / "x.jsonl").close()
    assert (tmp_path / "x.jsonl").stat().st_mode & 0o077 == 0


def test_commands_given_at_once_get_ids_of_their_own(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        ids = list(pool.map(lambda _: commands.append(tmp_path, "finish"), range(12)))
    assert sorted(ids) == list(range(1, 13))
    assert [command["id"] for command in commands.after(tmp_path, 10)] == [11, 12]
