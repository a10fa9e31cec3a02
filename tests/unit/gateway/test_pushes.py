"""TESTS: pushes that come at the same time: they share an fsync, and nobody pays for another's mistake."""

from __future__ import annotations

import asyncio
import errno
import json

import pytest

from labkit.gateway.ledger import Answer, ForeignRun, Ledger
from labkit.gateway.pushes import Pushes
from labkit.gateway.rows import BadEvents


def together(ledger: Ledger, *payloads: object) -> list:
    """Answers and errors of pushes that wait at the same time."""

    async def push() -> list:
        pushes = Pushes(ledger)
        return await asyncio.gather(*map(pushes.accept, payloads), return_exceptions=True)

    return asyncio.run(push())


def of(*rows: dict) -> dict:
    return {"run_id": "r", "events": list(rows)}


def held(folder) -> list[int]:
    return [json.loads(line)["id"] for line in (folder / "events.jsonl").read_bytes().splitlines()]


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path, "r")
    yield ledger
    ledger.close()


def test_each_row_is_held_once_whoever_brought_it_and_all_are_answered(ledger, tmp_path, event):
    answers = together(ledger, of(event(1), event(2)), of(event(2), event(3)), of(event(5)), of(event(4)))
    assert answers == [Answer(5, [])] * 4
    assert held(tmp_path) == [1, 2, 3, 5, 4]


def test_pushes_that_wait_at_the_same_time_share_one_write(ledger, tmp_path, event, monkeypatch):
    writes, append = [], ledger._chain._lines.append_bytes
    monkeypatch.setattr(
        ledger._chain._lines, "append_bytes", lambda lines: (append(lines), writes.append(len(lines)))
    )
    together(ledger, *(of(event(n)) for n in range(1, 21)))
    assert len(writes) <= 2 and held(tmp_path) == list(range(1, 21))


def test_a_push_that_is_refused_spoils_no_other(ledger, tmp_path, event):
    foreign = {"run_id": "another", "events": [event(2)]}
    answers = together(ledger, of(event(1)), "no push", foreign, of(event(2)))
    assert answers[0] == answers[3] == Answer(2, [])
    assert isinstance(answers[1], BadEvents) and isinstance(answers[2], ForeignRun)
    assert held(tmp_path) == [1, 2]


def test_of_two_that_contradict_each_other_the_first_is_held_and_the_second_is_told(ledger, tmp_path, event):
    answers = together(ledger, of(event(1)), of(event(1, phase="other")))
    assert answers == [Answer(1, []), Answer(1, [1])]
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "ledger.jsonl").read_bytes().splitlines()]
    assert kinds == ["opened", "event", "conflict"]


def test_a_full_disk_fails_who_brought_something_new_and_nobody_else(ledger, tmp_path, event, monkeypatch):
    ledger.accept(of(event(1)))

    def full(lines: bytes) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patched:
        patched.setattr(ledger._chain._lines, "append_bytes", full)
        answers = together(ledger, of(event(1)), of(event(2)), of(event(3)))
    assert answers[0] == Answer(1, [])
    assert all(isinstance(answer, OSError) for answer in answers[1:])
    assert together(ledger, of(event(2)), of(event(3))) == [Answer(3, [])] * 2
    assert held(tmp_path) == [1, 2, 3]


def test_a_row_is_known_whatever_the_order_of_its_columns(ledger, event):
    turned = dict(reversed(event(1).items()))
    assert together(ledger, of(event(1)), of(turned)) == [Answer(1, [])] * 2


def test_a_connection_that_pushes_alone_is_answered_each_time_and_its_rows_are_shown(ledger, tmp_path, event):
    async def one_by_one() -> list:
        pushes, told = Pushes(ledger), []
        for payload in (of(event(1)), of(event(2)), "no push", of(event(2)), of(event(3))):
            told += await asyncio.gather(pushes.accept(payload, "a connection"), return_exceptions=True)
        return told

    *answers, last = asyncio.run(one_by_one())
    assert answers[:2] == [Answer(1, []), Answer(2, [])] and isinstance(answers[2], BadEvents)
    assert (answers[3], last, held(tmp_path)) == (Answer(2, []), Answer(3, []), [1, 2, 3])
