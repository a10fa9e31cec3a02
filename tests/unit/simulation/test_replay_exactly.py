"""UNIT: unpleasant days and early endings are replayed to the row."""

import pytest
from test_replay import SLOW, TALK

from labkit.simulation import Script, simulate

UNPLEASANT = {
    "transport": [
        {"kind": "rate_limit", "retry_after_seconds": 33, "probability": 0.06},
        {"kind": "server", "status": 504, "probability": 0.06},
        {"kind": "in_body", "code": "502", "probability": 0.05},
        {"kind": "in_body", "code": "teapot", "probability": 0.05},
        {"kind": "refused", "purposes": ["worker", "digest"], "probability": 0.05},
        {"kind": "unreachable", "probability": 0.05},
        {"kind": "reset", "probability": 0.05, "billed": True},
        {"kind": "cut_stream", "probability": 0.04},
        {"kind": "html", "probability": 0.04},
        {"kind": "blank", "probability": 0.04},
        {"kind": "no_choices", "probability": 0.04},
        {"kind": "empty", "probability": 0.04, "billed": True},
    ],
    "silence": [
        {"kind": "silent", "probability": 0.06},
        {"kind": "drip", "probability": 0.06},
        {"kind": "slow", "seconds": 170, "probability": 0.05},
        {"kind": "outage", "from_minute": 10, "minutes": 70},
        {"kind": "server", "status": 504, "code": "provider_timeout", "probability": 0.05},
        {"kind": "server", "status": 502, "code": "cut", "message": "gave: no reply", "probability": 0.05},
    ],
    "replies": [
        {"kind": "words_only", "purposes": ["inspector"], "probability": 0.3},
        {"kind": "malformed_arguments", "probability": 0.1},
        {"kind": "wrong_types", "probability": 0.1},
        {"kind": "token_limit", "probability": 0.1},
        {"kind": "no_finish", "probability": 0.1},
        {"kind": "unknown_tool", "probability": 0.05},
        {"kind": "withheld_tool", "probability": 0.05},
        {"kind": "many_calls", "probability": 0.05},
        {"kind": "odd_text", "probability": 0.05},
        {"kind": "loop", "probability": 0.1},
    ],
}


@pytest.mark.parametrize("day", UNPLEASANT)
def test_an_unpleasant_day_is_replayed_to_the_row(memory, day):
    """Failed attempts included: the same steps, words, verdicts, seconds, money and ending."""
    script = Script.from_dict({"latency": SLOW, "faults": UNPLEASANT[day], "block_probability": 0.3})
    first = simulate(script, seed=5, minutes=40, folder=memory / "first")
    again = simulate(seed=99, replay=first.folder / "telemetry/sealed/run.db", folder=memory / "again")
    assert again.query(TALK) == first.query(TALK)
    attempts = "SELECT purpose, attempt, status, detail, latency_seconds, cost_usd IS NULL FROM api_requests"
    assert again.query(attempts) == first.query(attempts)
    for figure in (
        "steps",
        "stop_reason",
        "elapsed_seconds",
        "inspector_reviews",
        "inspector_blocks",
        "digest_refreshes",
    ):
        assert again.summary[figure] == first.summary[figure], figure
    assert again.simulated_seconds == pytest.approx(first.simulated_seconds, abs=60)


def asked(minute, what, **args):
    return {"at_minute": minute, "what": what} | ({"args": args} if args else {})


ENDED = {
    "finished by a person": [
        asked(2, "say", text="hurry"),
        asked(3, "extend", minutes=5),
        asked(6, "finish"),
    ],
    "stopped by a person": [asked(4, "say", text="thanks"), asked(5.2, "stop")],
    "interrupted": [asked(5.0, "interrupt")],
    "disk limit reached": [asked(5.0, "disk_full")],
}


@pytest.mark.parametrize("stop_reason", ENDED)
def test_what_a_person_or_a_full_disk_did_to_a_session_happens_again(memory, stop_reason):
    script = Script.from_dict({"latency": SLOW, "incidents": ENDED[stop_reason]})
    first = simulate(script, seed=2, minutes=20, folder=memory / "first")
    again = simulate(seed=99, replay=first.folder / "telemetry/sealed/run.db", folder=memory / "again")
    assert first.summary["stop_reason"] == again.summary["stop_reason"] == stop_reason
    assert again.summary["steps"] == first.summary["steps"]
    assert again.query(TALK) == first.query(TALK)


def test_a_pause_lasts_as_long_again_and_is_charged_no_more_than_then(memory):
    script = Script.from_dict({"latency": SLOW, "incidents": [asked(3, "pause"), asked(9, "unpause")]})
    first = simulate(script, seed=2, minutes=15, folder=memory / "first")
    again = simulate(replay=first.folder / "telemetry/sealed/run.db")
    assert again.summary["elapsed_seconds"] == first.summary["elapsed_seconds"]
    assert again.simulated_seconds == pytest.approx(first.simulated_seconds, abs=2)
    assert again.simulated_seconds > again.summary["elapsed_seconds"] + 300
