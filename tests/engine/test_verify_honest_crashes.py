"""TESTS: sessions whose harness or gateway was killed in the middle and went on: nobody is accused."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest
from native_lab import Lab

from labkit.gateway import pidfile, process
from labkit.verification.verify import examine, text

SEEDS = range(20) if os.environ.get("LAB_TEST_SOAK") else range(5)
STEP_SECONDS = 1.5  # of the run's clock: the session has forty steps, however slow or quick the machine


def kill_gateway(lab) -> None:
    os.kill(pidfile.read(lab.gateway), signal.SIGKILL)
    while pidfile.read(lab.gateway):
        time.sleep(0.01)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_session_whose_harness_and_gateway_were_killed_holds(tmp_path_factory, seed):
    chance = random.Random(seed)
    lab = Lab(tmp_path_factory.mktemp(f"resumed-{seed}"), minutes=1.0)
    lab.start_gateway()
    try:
        harness = lab.start_harness(STEP_SECONDS)
        lab.wait_for_events(14 + chance.randrange(9))
        lab.kill(harness)
        harness = lab.start_harness(STEP_SECONDS)
        lab.wait_for_events(30 + chance.randrange(9))
        kill_gateway(lab)
        lab.start_gateway()
        assert harness.wait(100) == 0
    finally:
        process.stop(lab.gateway)
    report = examine(lab.collect())
    assert report.holds, text(report)
    assert report.checked["results shown again"] > 5
    assert not any("had not reached the gateway" in line for line in report.asserted), (
        "every event was pushed in the end"
    )


def test_a_session_that_was_never_resumed_holds_as_far_as_it_came(tmp_path_factory):
    lab = Lab(tmp_path_factory.mktemp("unsealed"))
    lab.start_gateway()
    harness = lab.start_harness()
    try:
        lab.wait_for_events(15)
        lab.kill(harness)
    finally:
        process.stop(lab.gateway)
    report = examine(lab.collect())
    assert report.holds, text(report)
    assert "the run was not sealed" in report.notes
