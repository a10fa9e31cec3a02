"""UNIT: what the model is shown is always a list that a provider takes."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_gateway import broken

from harness.context import Context, Step, validate
from harness.errors import ContextError
from harness.money import Usage
from harness.replies import Reply, ToolCall
from harness.steps import as_step
from harness.tools.base import Outcome


def step(number: int, calls: int, nudged: bool = False, size: int = 10) -> Step:
    ids = [f"c{number}-{at}" for at in range(calls)]
    made = [{"id": name, "type": "function", "function": {"name": "x", "arguments": "{}"}} for name in ids]
    messages = [{"role": "user", "content": "[Time]"}] if nudged else []
    messages.append({"role": "assistant", "content": "x" * size, **({"tool_calls": made} if made else {})})
    messages += [{"role": "tool", "tool_call_id": name, "content": "y" * size} for name in ids]
    return Step(number, messages)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.sampled_from([10, 10, 90_000])), max_size=40),
    st.integers(2, 8),
    st.integers(1, 7),
)
def test_any_cut_of_the_window_leaves_a_valid_list_made_of_whole_steps(shapes, most, least):
    context = Context("system", most, min(least, most - 1))
    for number, (calls, nudged, size) in enumerate(shapes):
        if context.is_full():
            before = len(context.steps)
            assert context.cut()
            assert 1 <= len(context.steps) < before
        sent = context.outgoing([], "Phase: X")
        assert broken(sent) == ""
        assert sent[0]["content"] == "system"
        assert sent[-1]["content"] == "Phase: X"
        context.add(step(number, calls, nudged, size))


def test_the_prefix_is_byte_equal_between_two_cuts():
    context = Context("system", 18, 6)
    previous, stable = [], 0
    for number in range(200):
        cut = context.is_full() and bool(context.cut())
        sent = context.outgoing([], f"Step: {number}")
        if not cut and previous:
            assert sent[: len(previous) - 1] == previous[:-1]
            stable += 1
        previous = sent
        context.add(step(number, 1))
    assert stable > 170


@pytest.mark.slow
@pytest.mark.parametrize(("most", "least"), [(18, 6), (12, 12)], ids=["grows and is cut", "slides by one"])
@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.booleans(), st.sampled_from([10, 3000, 10, 3000, 3000, 90_000])),
        min_size=1,
        max_size=12,
    )
)
def test_over_five_hundred_steps_only_a_cut_changes_the_prefix_and_every_list_is_valid(most, least, shapes):
    context = Context("system", most, least)
    previous, before, cuts, dropped = "", None, 0, 0
    for number in range(500):
        calls, nudged, size = shapes[number % len(shapes)]
        is_cut = context.is_full()
        context.drop()
        dropped, context.pending = dropped + len(context.pending), []
        if number % 37 == 5:
            context.digest = f"digest at {number}"
            is_cut = True  # stands at the top, as after a refresh
        sent = context.outgoing([], f"Step: {number}")
        assert broken(sent) == ""
        flat = json.dumps(sent[:-1])[:-1]
        if before is not None and not is_cut:
            assert flat.startswith(previous)
        cuts += is_cut
        previous, before = flat, sent
        context.add(step(number, calls, nudged, size))
    assert dropped + len(context.steps) == 500
    assert cuts > 30


def test_a_window_that_slides_asks_for_a_digest_once_as_many_steps_left_as_it_holds():
    context = Context("system", 12, 12)
    asked = []
    for number in range(100):
        if context.drop():
            asked.append([known.number for known in context.pending])
            context.pending = []
        assert len(context.steps) <= 12
        context.add(step(number, 1))
    assert asked[0] == list(range(12))
    assert [numbers[0] for numbers in asked] == list(range(0, 12 * len(asked), 12))


def test_broken_steps_are_left_out_and_the_others_stay():
    context = Context("system", 18, 6)
    torn = step(2, 1)
    torn.messages.pop()
    context.steps = [step(1, 1), torn, step(3, 1), step(1, 1)]
    with pytest.raises(ContextError):
        context.outgoing([], "status")
    assert context.repair() == 2
    assert [known.number for known in context.steps] == [1, 3]
    assert broken(context.outgoing([], "status")) == ""


def test_ids_that_a_provider_repeats_in_each_reply_are_told_apart():
    context = Context("system", 18, 6)
    for number in range(3):
        reply = Reply(
            "x", (ToolCall("call_0", "a", "{}"), ToolCall("call_1", "a", "{}")), "stop", Usage(), None
        )
        context.add(as_step(number, [], reply, [Outcome("1"), Outcome("2")], lambda text: text))
    assert broken(context.outgoing([], "status")) == ""


def test_the_window_grows_to_its_most_and_is_cut_to_its_least():
    context = Context("system", 18, 6)
    sizes = []
    for number in range(100):
        if context.is_full():
            context.cut()
        sizes.append(len(context.steps))
        context.add(step(number, 1))
    assert max(sizes) == 18
    assert set(sizes[40:]) == set(range(6, 19))


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "tool", "tool_call_id": "a", "content": ""}],
        step(1, 1).messages[:1],
        step(1, 2).messages[:2],
        [*step(1, 1).messages, step(1, 1).messages[1]],
        [step(1, 1).messages[0], {"role": "user", "content": ""}, step(1, 1).messages[1]],
        [*step(1, 1).messages, *step(1, 1).messages],
        [{"role": "assistant", "content": None}],
        [{"role": "robot", "content": "x"}],
    ],
    ids=[
        "orphan",
        "unanswered",
        "half answered",
        "answered twice",
        "torn apart",
        "an id twice",
        "no text",
        "no role",
    ],
)
def test_a_list_that_a_provider_would_refuse_is_never_sent(messages):
    with pytest.raises(ContextError):
        validate(messages)
