"""TESTS: events behind an outage, and a gateway that is killed again and again while they come."""
# ruff: noqa: F401, F811 - fixtures are imported by their names

from __future__ import annotations

import json
import random
import threading
import time

import httpx2
import pytest
from gateway_process import event, make_config, run_gateway
from loopback import until

KILLS = 50
EVENTS = 5000
BATCH = 10  # fewer than the harness sends, so that more kills fall between two pushes and into one


class Guest(threading.Thread):
    """Pushes from the watermark, as the harness does; an answer that did not come is asked for again.

    may_push: up to which row; without it a quick machine would have pushed all in the first few lives.
    """

    def __init__(self, running, rows: list[dict]) -> None:
        super().__init__(daemon=True)
        self.running, self.rows, self.watermark, self.done = running, rows, 0, threading.Event()
        self.may_push = 0

    def run(self) -> None:
        while self.watermark < len(self.rows) and not self.done.is_set():
            try:
                batch = self.rows[self.watermark : min(self.watermark + BATCH, self.may_push)]
                answer = self.running.push(*batch)
                answer.raise_for_status()
                said = answer.json()["watermark"]
                assert "conflicts" not in answer.json() and said >= self.watermark
                self.watermark = said
                time.sleep(0.02 * random.random())
            except (httpx2.HTTPError, ValueError):
                time.sleep(0.05)


@pytest.mark.timeout(900)
def test_5000_events_behind_an_outage_come_once_each_and_in_order_however_often_the_gateway_is_killed(
    run_gateway, event
):
    chance = random.Random(7)
    running = run_gateway()
    rows = [event(n, sanitized_output="x" * (n % 200)) for n in range(1, EVENTS + 1)]
    running.kill()  # the outage: the guest is ahead by all its rows
    guest = Guest(running, rows)
    guest.start()
    try:
        for number in range(1, KILLS + 1):
            held, guest.may_push = guest.watermark, number * EVENTS // KILLS
            running.start()
            if number % 2:  # each second life is long enough for a push, however slow the machine
                until(lambda held=held: guest.watermark > held)
            time.sleep(chance.random() * 0.2)
            running.kill()
        guest.may_push = EVENTS
        running.start()
        guest.join(120)
    finally:
        guest.done.set()
    assert guest.watermark == EVENTS
    held = [json.loads(line) for line in (running.folder / "events.jsonl").read_text().splitlines()]
    assert held == rows
    kinds = [json.loads(line)["kind"] for line in (running.folder / "ledger.jsonl").read_bytes().splitlines()]
    assert kinds.count("event") == EVENTS and "conflict" not in kinds
    assert kinds.count("started") >= KILLS
    between = "".join(kind[0] for kind in kinds if kind in ("event", "started"))
    lives = [len(life) for life in between.split("s")]
    assert sum(life > 0 for life in lives) >= KILLS // 2, "the kills did not fall into the stream"
