"""TESTS: events behind an outage, and a gateway that is killed again and again while they come."""
# ruff: noqa: F401, F811 - fixtures are imported by their names

from __future__ import annotations

import json
import os
import random
import threading
import time

import httpx2
from gateway_process import event, make_config, run_gateway
from loopback import until

SOAK = bool(os.environ.get("LAB_TEST_SOAK"))
KILLS = 50 if SOAK else 8
EVENTS = 5000
BATCH = 100  # as harness/gateway.py


class Guest(threading.Thread):
    """Pushes from the watermark, as the harness does; an answer that did not come is asked for again."""

    def __init__(self, running, rows: list[dict]) -> None:
        super().__init__(daemon=True)
        self.running, self.rows, self.watermark, self.done = running, rows, 0, threading.Event()

    def run(self) -> None:
        while self.watermark < len(self.rows) and not self.done.is_set():
            try:
                batch = self.rows[self.watermark : self.watermark + BATCH]
                answer = self.running.push(*batch)
                answer.raise_for_status()
                said = answer.json()["watermark"]
                assert "conflicts" not in answer.json() and said >= self.watermark
                self.watermark = said
                time.sleep(0.02 * random.random())
            except (httpx2.HTTPError, ValueError):
                time.sleep(0.05)


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
        for number in range(KILLS):
            held = guest.watermark
            running.start()
            if number % 2:  # each second life is long enough for a push, however slow the machine
                until(lambda held=held: guest.watermark > held or not guest.is_alive())
            time.sleep(chance.random() * 0.2)
            running.kill()
        running.start()
        guest.join(60)
    finally:
        guest.done.set()
    assert guest.watermark == EVENTS
    held = [json.loads(line) for line in (running.folder / "events.jsonl").read_text().splitlines()]
    assert held == rows
    kinds = [json.loads(line)["kind"] for line in (running.folder / "ledger.jsonl").read_bytes().splitlines()]
    assert kinds.count("event") == EVENTS and "conflict" not in kinds
    assert kinds.count("started") >= KILLS
    between = "".join(kind[0] for kind in kinds if kind in ("event", "started"))
    assert sum(life != "" for life in between.split("s")) >= 2, "no kill fell between two pushes"
