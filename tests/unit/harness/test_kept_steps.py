"""UNIT: the memory in session_state: a row a step, the same after a restart, written once."""

import random

import pytest
from scripted_gateway import TOKEN
from test_context import step

from harness.session import PLACE, Session, from_rows, load
from harness.telemetry.recorder import Recorder


@pytest.fixture
def recorder(tmp_path):
    return Recorder(tmp_path / "run.db", tmp_path / "mirror.db", TOKEN, lambda: 1.0)


def saved(session, recorder, steps, pending=()):
    """How many rows of run.db the checkpoint wrote."""
    before = recorder.db.total_changes
    session.keep(list(steps), list(pending))
    session.save(recorder)
    return recorder.db.total_changes - before


def test_a_checkpoint_writes_the_newest_step_and_not_the_whole_memory_again(recorder):
    session, steps = Session("r"), [step(number, 2, size=5000) for number in range(10)]
    saved(session, recorder, steps)
    assert saved(session, recorder, [*steps, step(10, 1)]) == 2  # the step, and the order of the window
    assert saved(session, recorder, session.steps()) == 0


def test_whatever_enters_and_leaves_memory_a_restart_finds_it_as_it_was_and_places_are_used_anew(recorder):
    chance, session, steps, pending, most = random.Random(5), Session("r"), [], [], 0
    for number in range(120):
        steps.append(step(number, number % 3, size=number))
        if len(steps) > 8:
            pending, steps = pending + steps[:-3], steps[-3:]
        if chance.random() < 0.1:
            pending = []
        saved(session, recorder, steps, pending)
        most = max(most, len(steps) + len(pending))
        if chance.random() < 0.2:
            session = load(recorder, "r")
            assert (session.steps(), session.pending_steps()) == (steps, pending)
            steps, pending = session.steps(), session.pending_steps()
    places = [key for key in recorder.state() if key.startswith(PLACE)]
    assert len(places) == most


def test_both_copies_of_the_record_have_the_memory(recorder, tmp_path):
    session = Session("r")
    for last in (4, 6, 9):
        saved(session, recorder, [step(number, 1) for number in range(last)])
    recorder.close_mirror()
    mirror = Recorder(tmp_path / "mirror.db", tmp_path / "third.db", TOKEN, lambda: 1.0)
    assert [known.number for known in load(mirror, "r").steps()] == list(range(9))


def test_a_memory_of_which_a_row_is_gone_is_no_memory(recorder):
    session = Session("r")
    saved(session, recorder, [step(1, 1), step(2, 1)])
    rows = recorder.state()
    del rows[f"{PLACE}1"]
    with pytest.raises(LookupError):
        from_rows(rows)
