"""UNIT: what a person's commands make of clock, phases and the flag that ends a run."""

import json
import sqlite3
import threading
import time
from types import SimpleNamespace

import pytest

from harness import commands
from harness.clock import Clock
from harness.commands import StopFlag
from harness.gateway import FINISH_GRACE, GatewayLink
from harness.orchestrator import Orchestrator
from harness.phases import FINAL, PHASES
from harness.telemetry import events
from harness.telemetry.recorder import Recorder


class Hand:
    """A clock's time, turned by hand."""

    def __init__(self):
        self.at = 100.0

    def __call__(self):
        return self.at


def phase_now(phase, fraction, cause=""):
    clock = SimpleNamespace(fraction=lambda: fraction)
    loop = SimpleNamespace(session=SimpleNamespace(cause=cause), phase=phase, clock=clock)
    return Orchestrator._phase_now(loop).name


@pytest.mark.parametrize(
    ("phase", "fraction", "cause", "expected"),
    [
        (None, 0.0, "", "EXPLORATION"),
        (PHASES[0], 0.6, "", "SYNTHESIS"),
        (PHASES[2], 0.1, "", "SYNTHESIS"),  # a run that was extended does not explore again
        (PHASES[1], 0.1, "", "DEVELOPMENT"),
        (FINAL, 0.4, "", "SYNTHESIS"),  # but the report waits
        (FINAL, 0.4, "finished by a person", "FINAL_REPORT"),
        (FINAL, 0.9, "", "FINAL_REPORT"),
    ],
)
def test_a_longer_run_goes_back_from_the_report_alone(phase, fraction, cause, expected):
    assert phase_now(phase, fraction, cause) == expected


def test_an_extension_moves_the_end_the_reserve_and_the_wall_limit():
    hand = Hand()
    clock = Clock(600, 0.1, hand)
    clock.start()
    hand.at += 500
    clock.extend(600)
    assert (clock.remaining(), clock.reserve, clock.wall_remaining()) == (700, 120, 2 * 1200 - 500)


def test_an_extension_leaves_a_run_that_was_asked_to_finish_its_end():
    hand = Hand()
    clock = Clock(3600, 0.1, hand)
    clock.start()
    clock.finish_soon()
    end = clock.end
    clock.extend(600)
    assert clock.end == end < 3600


def test_the_flag_knows_when_the_loop_last_looked_and_a_long_wait_counts_as_looking():
    flag = StopFlag()
    flag.looked_at -= 100
    flag.is_set()
    assert time.monotonic() - flag.looked_at < 50
    threading.Timer(0.2, flag.set).start()
    assert flag.wait(30) is True
    flag.clear()
    flag.looked_at -= 100
    assert flag.wait(0.05) is False
    assert time.monotonic() - flag.looked_at < 50


def test_a_finish_leaves_what_runs_some_seconds_and_then_none_until_it_is_taken():
    settings = SimpleNamespace(
        gateway_url="http://127.0.0.1:9", token="t", run_id="r", paths=SimpleNamespace(primary_db="x")
    )
    link = GatewayLink(settings)
    link._call = lambda path, body=None: {"commands": [{"id": 1, "name": "finish", "args": {}}]}
    assert link.patience() == float("inf")
    link._poll()
    assert 0 < link.patience() <= FINISH_GRACE
    link._finish_at -= 2 * FINISH_GRACE
    assert link.patience() == 0
    assert [command["id"] for command in link.take_commands()] == [1]
    assert link.patience() == float("inf")
    link._poll()
    assert link.take_commands() == [], "an id that came once does not come again"


def test_a_link_that_keeps_the_record_open_sees_each_new_row_and_pins_nothing(tmp_path):
    recorder = Recorder(tmp_path / "a/run.db", tmp_path / "b/run.db", "", lambda: 1.0)
    paths = SimpleNamespace(primary_db=tmp_path / "a/run.db")
    link = GatewayLink(SimpleNamespace(gateway_url="http://127.0.0.1:9", token="t", run_id="r", paths=paths))
    pushed = []
    link._call = lambda path, body: pushed.extend(body["events"]) or {"watermark": pushed[-1]["id"]}
    for _ in range(3):
        recorder.event(events.GUARD)
        assert link._push() is False, "one look is enough for what fits a batch"
        assert recorder.query("PRAGMA wal_checkpoint(TRUNCATE)") == [(0, 0, 0)]
    assert [row["id"] for row in pushed] == [1, 2, 3]


def test_a_command_that_could_not_be_recorded_is_taken_again_and_in_order():
    taken = [{"id": number, "name": name} for number, name in ((1, "pause"), (2, "unpause"), (3, "dance"))]
    link = SimpleNamespace(given=list(taken), acknowledged=0)
    link.take_commands = lambda: [link.given.pop(0) for _ in range(len(link.given))]
    link.give_back = lambda rest: link.given.extend(rest)
    link.acknowledge = lambda number: setattr(link, "acknowledged", number)
    rows = []

    def event(word, command_or_input):
        if len(rows) == 1 and not link.full:
            link.full = True
            raise sqlite3.OperationalError("database or disk is full")
        rows.append(json.loads(command_or_input)["id"])

    link.full = False
    session = SimpleNamespace(commands_after=0, paused=False)
    recorder = SimpleNamespace(event=event)
    loop = SimpleNamespace(link=link, session=session, recorder=recorder, checkpoint=lambda: None)
    with pytest.raises(sqlite3.Error):
        commands._take(loop)
    assert session.paused
    commands._take(loop)
    assert (rows, link.acknowledged, session.paused) == ([1, 2, 3], 3, False)
