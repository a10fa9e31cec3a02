"""UNIT: what the model is shown is always a list that a provider takes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_gateway import broken

from harness.context import Context, Step, validate
from harness.errors import ContextError


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
    ],
    ids=["orphan", "unanswered", "half answered", "answered twice", "torn apart"],
)
def test_a_list_that_a_provider_would_refuse_is_never_sent(messages):
    with pytest.raises(ContextError):
        validate(messages)
