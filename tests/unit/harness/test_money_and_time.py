"""UNIT: the purse, the clock, the nudges and the guards."""

from types import SimpleNamespace

import pytest

from harness.clock import Clock, spoken
from harness.guards import GUARDS, View
from harness.money import Purse, Usage
from harness.nudges import Nudges, time_nudge
from harness.phases import PHASES
from harness.replies import _usage


def test_the_reference_runs_bill_is_met_without_counting_cached_or_reasoning_tokens_twice():
    purse = Purse(25.0, 0.10, 0.20, 8192)
    cost = purse.price(Usage(prompt=11_300_000, completion=430_000, cached=9_000_000, reasoning=200_000))
    assert cost == pytest.approx(1.216, abs=0.001)
    assert purse.price(Usage(prompt=11_300_000, completion=430_000, cost=1.15)) == 1.15


def test_the_reference_runs_arithmetic_holds_call_by_call_and_a_bill_goes_before_the_price_table():
    """745 calls, 11.3 M tokens in and 430 k out at $0.10 and $0.20 a million; $1.15 were billed."""
    purse = Purse(25.0, 0.10, 0.20, 8192)
    calls = [(15_168, 577)] * 745
    for tokens_in, tokens_out in calls:
        usage = Usage(
            prompt=tokens_in, completion=tokens_out, cached=tokens_in // 7, reasoning=tokens_out // 2
        )
        purse.settle(purse.price(usage), purse.worst_case(60_000))
    assert sum(tokens_in for tokens_in, _ in calls) == pytest.approx(11_300_000, rel=0.001)
    assert sum(tokens_out for _, tokens_out in calls) == pytest.approx(430_000, rel=0.001)
    assert purse.spent == pytest.approx(11.3 * 0.10 + 0.43 * 0.20, abs=0.001)
    billed = Purse(25.0, 0.10, 0.20, 8192)
    for tokens_in, tokens_out in calls:
        billed.settle(billed.price(Usage(tokens_in, tokens_out, cost=1.15 / 745)), 0)
    assert billed.spent == pytest.approx(1.15)
    assert billed.spent < purse.spent


@pytest.mark.parametrize("lie", [float("nan"), float("inf"), -1, True, "0.1", None, [1]])
def test_a_cost_that_is_no_amount_of_money_is_unknown(lie):
    raw = SimpleNamespace(prompt_tokens=10, completion_tokens=5, model_extra={"cost": lie})
    assert _usage(raw).cost is None


@pytest.mark.parametrize("lie", [-5, True, "10", 1.5, None, 1 << 60])
def test_a_count_that_is_no_count_is_unknown(lie):
    usage = _usage(SimpleNamespace(prompt_tokens=lie, completion_tokens=lie))
    assert (usage.prompt, usage.completion) == (None, None)
    assert Purse(1, 1, 1, 1).price(usage) is None


def test_cached_and_reasoning_tokens_are_never_more_than_what_they_are_a_part_of():
    raw = SimpleNamespace(
        prompt_tokens=100, completion_tokens=50, prompt_tokens_details=SimpleNamespace(cached_tokens=900),
        completion_tokens_details=SimpleNamespace(reasoning_tokens=900),
    )  # fmt: skip
    assert (_usage(raw).cached, _usage(raw).reasoning) == (100, 50)


def test_the_reserve_grows_with_the_prompt_that_the_report_would_need():
    purse = Purse(25.0, 0.10, 0.20, 8192)
    small = purse.reserve
    purse.keep_for(400_000)
    assert purse.reserve == purse.worst_case(400_000) > small
    purse.keep_for(10)
    assert purse.reserve == small


def test_an_unknown_cost_is_neither_nothing_nor_everything():
    purse = Purse(1.0, 0.10, 0.20, 8192)
    assert purse.price(Usage()) is None
    purse.settle(None, 0.4)
    assert purse.spent == 0
    assert purse.allows(0.3, final=False)
    assert not purse.allows(0.7, final=False)


def test_the_reserve_is_kept_for_the_final_phase():
    purse = Purse(0.01, 0.10, 0.20, 8192)
    purse.settle(0.006, 0)
    assert not purse.allows(0.002, final=False)
    assert purse.allows(0.002, final=True)


class Hand:
    """A monotonic clock moved by hand."""

    def __init__(self):
        self.at = 1000.0

    def __call__(self):
        return self.at


def test_the_clock_stands_still_before_the_start_and_during_an_outage():
    hand = Hand()
    clock = Clock(600, 0.1, now=hand)
    hand.at += 50
    assert clock.elapsed() == 0
    clock.start()
    hand.at += 10
    with clock.uncharged():
        hand.at += 100
    assert clock.elapsed() == 10
    assert clock.wall_remaining() == 1200 - 110


def test_work_is_clipped_to_what_is_left_before_the_reports_reserve():
    hand = Hand()
    clock = Clock(600, 0.1, now=hand)
    clock.start()
    hand.at += 500
    assert clock.for_work() == 40
    hand.at += 60
    assert clock.in_reserve()
    assert clock.for_work() == 40


def test_a_person_who_asks_to_finish_leaves_a_minute_at_most_and_a_reserve_in_it():
    hand = Hand()
    clock = Clock(120, 0.1, now=hand)
    clock.start()
    clock.finish_soon()
    assert clock.remaining() == 60
    assert not clock.in_reserve()


def test_an_outage_after_that_is_within_the_minute_and_so_it_is_when_the_process_is_another():
    hand = Hand()
    clock = Clock(120, 0.1, now=hand)
    clock.start()
    hand.at += 10
    clock.finish_soon()
    with clock.uncharged():
        hand.at += 45
    assert (clock.remaining(), clock.wall_remaining()) == (60, 15)
    later = Clock(120, 0.1, now=hand)
    later.start()
    later.carry_on(clock.elapsed(), clock.wall_elapsed(), clock.end)
    assert later.wall_remaining() <= 60


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0m 00s"), (125, "2m 05s"), (900, "0h 15m"), (6240, "1h 44m")]
)
def test_time_is_told_in_words(seconds, text):
    assert spoken(seconds) == text


def test_a_nudge_comes_each_quarter_hour_and_a_short_run_gets_its_eight():
    long, hours = Nudges(15), 8 * 3600
    assert [minute for minute in range(0, 121) if long.due(minute * 60, hours)] == list(range(15, 121, 15))
    short = Nudges(15)
    assert sum(short.due(second, 120) for second in range(120)) == 7


def test_a_short_run_that_was_extended_is_nudged_like_the_long_one_that_it_is():
    nudges = Nudges(15)
    assert sum(nudges.due(second, 120) for second in range(60)) == 3
    assert sum(nudges.due(second, 7200) for second in range(60, 7200)) == 7


def test_a_long_step_yields_one_nudge_not_a_pile():
    nudges = Nudges(15)
    assert nudges.due(4000, 8 * 3600)
    assert not nudges.due(4010, 8 * 3600)


def test_nudges_name_the_time_and_differ_by_phase():
    texts = {time_nudge(phase.name, 900, 6240) for phase in PHASES}
    assert len(texts) == 4
    assert all("0h 15m" in text and "1h 44m" in text and "{{" not in text for text in texts)


def view(**changes):
    calm = {"disk_percent": 10, "disk_limit_percent": 92, "spent": 1, "worst_next": 0.1, "budget": 25}
    return View(**(calm | {"reserve": 0.1, "repeated": None} | changes))


@pytest.mark.parametrize(
    ("name", "alarm"),
    [("disk", {"disk_percent": 92.5}), ("money", {"spent": 24.9}), ("repetition", {"repeated": "3 times"})],
)
def test_each_guard_speaks_of_its_own_matter_only(name, alarm):
    assert [guard.name for guard in GUARDS if guard.check(view(**alarm))] == [name]
    assert not any(guard.check(view()) for guard in GUARDS)
