"""UNIT: who circles is nudged, then refused, then made to change; who gets on is left alone."""

import json
from pathlib import Path

import pytest
import yaml

from harness.nudges import repetition_nudge
from harness.prompting import BLANK
from harness.repetition import CHANGE, NUDGE, REFUSAL, REFUSE, Alarm, Repetition, named
from harness.tools.base import Outcome

TRACES = yaml.safe_load((Path(__file__).parent / "traces" / "repetition.yml").read_text())
LOOPING, HONEST = TRACES["looping"], TRACES["honest"]


def steps_of(trace):
    """Each step's calls as (command, outcome)."""
    number = 0
    for _ in range(trace["rounds"]):
        for step in trace["steps"]:
            number += 1
            yield [(numbered(call[0], number), outcome(call, number)) for call in step]


def numbered(text, number):
    return text.replace("{n2}", f"{number:02d}").replace("{n}", str(number))


def outcome(call, number):
    return Outcome(numbered(call[1], number), reason=call[2] if len(call) > 2 else None)


def played(trace, repetition=None):
    """The rungs that were reached, in order, by a Worker that goes on whatever it is told."""
    repetition, alarms = repetition or Repetition(3, 6), []
    for calls in steps_of(trace):
        done = [
            (command, Outcome(REFUSAL) if repetition.refuses(command) else made) for command, made in calls
        ]
        repetition.saw(done)
        while alarm := repetition.found():
            alarms.append(alarm)
    return alarms


def test_there_are_thirty_looping_and_twenty_honest_traces():
    assert (len(LOOPING), len(HONEST)) == (30, 20)


@pytest.mark.parametrize("name", LOOPING)
def test_a_loop_is_nudged_then_refused_then_changed(name):
    rungs = [alarm.rung for alarm in played(LOOPING[name])]
    assert rungs[0] == NUDGE
    assert REFUSE in rungs and CHANGE in rungs
    assert rungs.index(NUDGE) < rungs.index(REFUSE) < rungs.index(CHANGE)


@pytest.mark.parametrize("name", HONEST)
def test_honest_work_is_left_alone(name):
    assert played(HONEST[name]) == []


def test_the_third_identical_call_within_six_steps_is_named_and_no_earlier_one():
    repetition = Repetition(3, 6)
    for number, calls in enumerate([["make"], [], ["make"], ["ls"]]):
        repetition.saw([(f"execute_shell {command}", Outcome("Error")) for command in calls])
        assert repetition.found() is None, number
    repetition.saw([("execute_shell make", Outcome("Error"))])
    alarm = repetition.found()
    assert (alarm.rung, alarm.tool) == (NUDGE, "execute_shell")
    assert "make" in alarm.what and "3 times in 6 steps" in alarm.what
    assert repetition.found() is None


def test_after_progress_a_command_starts_with_a_nudge_again():
    repetition = Repetition(3, 6)
    same = {"rounds": 3, "steps": [[["execute_shell make", "Error 1"]]]}
    assert [alarm.rung for alarm in played(same, repetition)] == [NUDGE]
    repetition.saw([("execute_shell make", Outcome("Error 2"))])
    assert [alarm.rung for alarm in played(same, repetition)] == [NUDGE]


def test_a_refused_command_may_be_tried_again_later():
    repetition = Repetition(3, 6)
    played({"rounds": 5, "steps": [[["execute_shell make", "Error 1"]]]}, repetition)
    assert repetition.refuses("execute_shell make")
    assert not repetition.refuses("execute_shell make -k")
    for number in range(24):
        repetition.saw([(f"execute_shell other {number}", Outcome(""))])
    assert not repetition.refuses("execute_shell make")


def test_a_checkpoint_keeps_all_of_it():
    repetition = Repetition(3, 6)
    played({"rounds": 5, "steps": [[["execute_shell make", "Error 1"]]]}, repetition)
    again = Repetition(3, 6, **json.loads(json.dumps(repetition.dump())))
    assert again == repetition
    assert again.refuses("execute_shell make")


def test_the_same_call_has_one_name_whatever_the_order_of_its_keys():
    assert named("read_file", {"b": 1, "a": 2}, "") == named("read_file", {"a": 2, "b": 1}, "")
    assert named("execute_shell", {"command": "ls"}, "") == "execute_shell ls"
    assert named("execute_shell", None, "{oops") == "execute_shell {oops"


@pytest.mark.parametrize("rung", [NUDGE, REFUSE, CHANGE])
def test_each_rung_has_words_of_its_own_that_name_the_command(rung):
    said = repetition_nudge(Alarm(rung, "3 times: execute_shell make", "execute_shell"), "write_scratchpad")
    assert "execute_shell make" in said
    assert not BLANK.search(said)
    assert ("is not run for a while" in said) == (rung == REFUSE)
    assert ("write_scratchpad" in said) == (rung == CHANGE)
