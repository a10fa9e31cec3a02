"""UNIT: how long a provider is left alone that says when to come again, on a clock that only waits move."""

import dataclasses
import itertools
import math
import threading

import httpx2
import pytest
from harness_run import run_settings

from harness.clock import Clock
from harness.errors import EndRun, Interrupted, ModelError
from harness.model import LONGEST_BACKOFF, Model
from harness.money import Purse
from harness.settings import from_dict
from harness.telemetry.recorder import Recorder
from harness.world import REAL

MESSAGES = [{"role": "user", "content": "Phase: EXPLORATION"}]
GOOD = {"choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "fine"}}]}
HOUR = 3600.0


class Asked:
    """A Model, the seconds at which its provider was asked, and what else happens when."""

    def __init__(self, folder, *answers, minutes=120):
        self.seconds, self.moments, self.agenda = 0.0, [], {}
        self.answers = itertools.chain(answers, itertools.repeat(answers[-1]))
        wanted = from_dict(run_settings(folder, "http://x.invalid", minutes=minutes))
        self.clock = Clock(wanted.length_seconds, 0.1, now=lambda: self.seconds, wait=self._pass)
        recorder = Recorder(folder / "run.db", folder / "mirror.db", wanted.token, self.clock.elapsed)
        self.clock.start()
        world = dataclasses.replace(REAL, transport=httpx2.MockTransport(self._answer))
        self.model = Model(wanted, recorder, self.clock, Purse.of(wanted), threading.Event(), world)

    def at(self, second, do):
        self.agenda[second] = do

    def _answer(self, _):
        self.moments.append(self.seconds)
        return next(self.answers)()

    def _pass(self, pause, stop):
        self.seconds += pause
        for second in [second for second in self.agenda if second <= self.seconds]:
            self.agenda.pop(second)()
        return stop.is_set()


def limited(status=429, **headers):
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda: httpx2.Response(status, headers=told, json={"error": {"message": "slow down"}})


def good():
    return httpx2.Response(200, json=GOOD)


@pytest.mark.parametrize(
    "bad",
    [
        limited(retry_after="300"),
        limited(503, retry_after="300"),
        limited(retry_after="Mon, 30 Nov 2026 10:05:00 GMT", date="Mon, 30 Nov 2026 10:00:00 GMT"),
        limited(retry_after="Sunday, 06-Nov-94 08:54:37 GMT", date="Sun, 06 Nov 1994 08:49:37 GMT"),
    ],
    ids=["429", "503", "date", "old date"],
)
def test_a_provider_is_asked_again_when_it_said_so_and_not_before(tmp_path, bad):
    one = Asked(tmp_path, bad, good)
    assert one.model.ask("worker", MESSAGES).text == "fine"
    assert one.moments == [0.0, 300.0]
    assert one.clock.elapsed() == 0.0, "an outage is not charged"


@pytest.mark.parametrize("told", ["1000000000", "inf", "nan", "-5", "soon", "Mon, 30 Nov 2099 10:00:00 GMT"])
def test_a_wait_that_nobody_can_mean_is_as_if_none_were_asked_for(tmp_path, told):
    one = Asked(tmp_path, limited(retry_after=told, date="Mon, 30 Nov 2026 10:00:00 GMT"), good)
    assert one.model.ask("worker", MESSAGES).text == "fine"
    assert one.moments == [0.0, 0.25]


def test_an_hour_without_a_word_on_when_is_asked_through_at_least_once_a_minute(tmp_path):
    one = Asked(tmp_path, limited())
    with pytest.raises(ModelError, match="given up"):
        one.model.ask("worker", MESSAGES, patience=HOUR)
    gaps = [after - before for before, after in itertools.pairwise(one.moments)]
    assert max(gaps) == LONGEST_BACKOFF
    assert HOUR - LONGEST_BACKOFF <= one.moments[-1] <= HOUR == one.seconds


@pytest.mark.parametrize("asked", ["300", "7200", "86400"])
def test_who_has_less_patience_than_is_asked_for_waits_that_long_and_does_not_ask_too_early(tmp_path, asked):
    one = Asked(tmp_path, limited(retry_after=asked))
    with pytest.raises(ModelError, match="given up after 1 attempts"):
        one.model.ask("inspector", MESSAGES, patience=30.0)
    assert (one.moments, one.seconds) == ([0.0], 30.0)


def test_the_wall_limit_ends_a_wait_and_nothing_is_asked_after_it(tmp_path):
    one = Asked(tmp_path, limited(retry_after="3000"), minutes=10)
    with pytest.raises(EndRun, match="wall limit reached"):
        one.model.ask("worker", MESSAGES)
    assert (one.moments, one.seconds) == ([0.0], 1200.0)


def test_a_person_who_asks_to_finish_is_heard_in_the_middle_of_a_wait(tmp_path):
    one = Asked(tmp_path, limited(retry_after="3000"))
    left = [math.inf]
    one.model.hurry = lambda: left[0]
    one.at(100, lambda: left.__setitem__(0, 5.0))
    with pytest.raises(ModelError, match="the session is to finish"):
        one.model.ask("worker", MESSAGES)
    assert 100 <= one.seconds <= 105
    assert one.moments == [0.0]


def test_a_stop_ends_a_wait(tmp_path):
    one = Asked(tmp_path, limited(retry_after="3000"))
    one.at(100, one.model.stop.set)
    with pytest.raises(Interrupted):
        one.model.ask("worker", MESSAGES)
    assert 100 <= one.seconds <= 101
