"""TESTS: a command that would change nothing is not asked again, and the person is told so."""

from __future__ import annotations

import pytest

from labkit import asking
from labkit.gateway import commands

RUN = "20261129-201202-b0dd88"


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / RUN
    made.mkdir()
    return made


def ask(folder, *names):
    """Answers to the commands, asked one after the other of a session that hears nothing."""
    return [asking.ask(folder, name, None, "", seconds=0) for name in names]


@pytest.mark.parametrize(
    ("before", "name", "sentence"),
    [
        (["pause"], "pause", "is paused already"),
        ([], "unpause", "is not paused"),
        (["pause", "unpause"], "unpause", "is not paused"),
        (["pause", "finish"], "unpause", "is not paused"),
        (["finish"], "finish", "was asked to end already"),
        (["stop"], "finish", "was asked to end already"),
        (["stop"], "stop", "was asked to stop already"),
    ],
)
def test_a_command_that_changes_nothing_is_not_asked_and_said_so(folder, before, name, sentence):
    ask(folder, *before)
    (answer,) = ask(folder, name)
    assert answer["changed"] is False and answer["text"].startswith(f"run {RUN} {sentence}")
    assert answer["text"].endswith("nothing more was asked")
    assert [item["name"] for item in commands.listed(folder)] == before
    assert answer["command"] == (len(before) or None)


@pytest.mark.parametrize(
    "names",
    [
        ["pause", "unpause", "pause", "unpause"],
        ["pause", "finish", "pause", "unpause"],
        ["finish", "stop"],
        ["finish", "pause", "unpause"],
    ],
)
def test_a_command_that_changes_something_is_asked_each_time(folder, names):
    assert [answer["changed"] for answer in ask(folder, *names)] == [True] * len(names)
    assert [item["name"] for item in commands.listed(folder)] == names


def test_what_is_said_twice_is_told_twice_and_time_is_given_twice(folder):
    for name, args in (("say", {"text": "hello"}), ("extend", {"minutes": 5.0})) * 2:
        assert asking.ask(folder, name, args, "", seconds=0)["changed"]
    assert len(commands.listed(folder)) == 4


def test_a_run_that_was_given_more_after_it_was_asked_to_end_can_be_asked_again(folder):
    """More money lets a run go on that was ending for the lack of it, whatever was asked meanwhile."""
    ask(folder, "finish")
    asking.ask(folder, "extend", {"budget_usd": 5.0}, "", seconds=0)
    assert ask(folder, "finish")[0]["changed"]
    assert not ask(folder, "finish")[0]["changed"]


def test_the_earlier_command_is_named_with_how_far_it_came(folder):
    ask(folder, "pause")
    deliveries = commands.Deliveries(folder)
    deliveries.hand_out(0)
    deliveries.acknowledge(1)
    deliveries.close()
    (again,) = ask(folder, "pause")
    assert (again["command"], again["state"]) == (1, "acknowledged")
    assert "(command 1: the session has taken it)" in again["text"]
