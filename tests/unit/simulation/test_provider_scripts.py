"""UNIT: provider scripts: what they may say, what each fault looks like to the harness, the shipped ones."""

from pathlib import Path

import pytest

from labkit.errors import USAGE, LabError
from labkit.simulation import Script, shipped, simulate
from labkit.simulation.script import INCIDENTS, REPLY, TRANSPORT, USAGES

SLOW = {"median_seconds": 15.0, "spread": 0.2, "longest_seconds": 60.0}
PAGE = (Path(__file__).parents[3] / "docs/simulate.md").read_text()

# The status that the harness writes into api_requests for a fault on the wire.
STATUS = {
    "silent": "silence",
    "drip": "silence",
    "cut_stream": "connection",
    "reset": "connection",
    "unreachable": "connection",
    "outage": "connection",
    "empty": "empty",
    "no_choices": "empty",
    "blank": "malformed",
    "html": "html",
    "rate_limit": "rate_limit",
    "server": "server",
    "refused": "refused",
    "in_body": "server",
    "no_finish": "malformed",
}


@pytest.mark.parametrize("kind", STATUS)
def test_a_fault_is_met_by_the_harness_as_what_it_is(memory, kind):
    fault = {"kind": kind, "steps": [3], "attempts": 1, "purposes": ["worker"]}
    result = simulate(Script.from_dict({"latency": SLOW, "faults": [fault]}), minutes=6, folder=memory / "s")
    asked = result.query(
        "SELECT status FROM api_requests WHERE step_number = 3 AND purpose = 'worker' LIMIT 1"
    )
    assert asked == [(STATUS[kind],)]
    assert result.faults == {kind: 1}
    assert result.summary["final_report_written"]


@pytest.mark.parametrize("kind", [kind for kind in REPLY if kind not in STATUS])
def test_an_odd_reply_ends_no_session_and_is_answered(memory, kind):
    fault = {"kind": kind, "steps": [3, 4], "purposes": ["worker"]}
    result = simulate(Script.from_dict({"latency": SLOW, "faults": [fault]}), minutes=6, folder=memory / "s")
    assert result.faults == {kind: 2}
    assert result.summary["stop_reason"] == "report delivered"
    counts = result.query(
        "SELECT SUM(event_type = 'TOOL_CALL') - SUM(event_type = 'TOOL_RESULT') FROM execution_logs"
    )
    assert counts == [(0,)]


def test_a_provider_asks_to_wait_and_is_waited_for(memory):
    fault = {
        "kind": "rate_limit",
        "steps": [2],
        "attempts": 1,
        "retry_after_seconds": 45,
        "purposes": ["worker"],
    }
    result = simulate(Script.from_dict({"faults": [fault]}), minutes=6)
    assert 44 < result.simulated_seconds - result.summary["elapsed_seconds"] < 60


@pytest.mark.parametrize("usage", USAGES)
def test_what_a_provider_says_of_its_usage_never_stops_a_session_early(usage):
    result = simulate(Script.from_dict({"latency": SLOW, "usage": usage}), minutes=6)
    assert result.summary["stop_reason"] in ("report delivered", "budget exhausted")
    assert result.billed_usd > 0
    unknown = result.summary["unknown_cost_requests"]
    assert (unknown > 0) == (usage == "none")


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_script_plays_a_short_session_to_its_seal(name):
    result = simulate(name, seed=2, minutes=6)
    assert result.summary["status"] == "sealed"
    assert result.summary["final_report_written"]
    assert Script.load(name).about
    assert f"`{name}`" in PAGE


def test_scripted_commands_are_answered_with_the_scripts_words(memory):
    command = {"match": "^python3", "output": "forty-two", "seconds": 3, "exit_code": 7}
    result = simulate(Script.from_dict({"commands": [command]}), minutes=4, folder=memory / "s")
    told = result.query("SELECT sanitized_output FROM execution_logs WHERE tool_name='execute_shell'")
    assert ("forty-two\n[exit code 7]",) in told


def test_a_command_longer_than_its_limit_is_told_to_be_killed_at_it(memory):
    command = {"match": "", "output": "begun", "seconds": 9000}
    script = Script.from_dict({"commands": [command]})
    result = simulate(script, minutes=30, settings={"command_timeout_seconds": 60}, folder=memory / "s")
    told = str(result.query("SELECT sanitized_output FROM execution_logs WHERE tool_name='execute_shell'"))
    assert "killed after 60 s" in told


@pytest.mark.parametrize(
    ("data", "word"),
    [
        ({"latencies": {}}, "latency"),
        ({"faults": [{"kind": "slwo"}]}, "slwo"),
        ({"faults": [{"kind": "slow", "probabilty": 0.1}]}, "probability"),
        ({"faults": {"kind": "slow"}}, "list"),
        ({"latency": {"median_seconds": 0}}, "median_seconds 0 is out of range in latency"),
        ({"command_seconds": {"longest_seconds": 1e-9}}, "longest_seconds"),
        ({"latency": 8}, "latency"),
        ({"latency": {"median_seconds": 10**400}}, "latency"),
        ({"prices": {"input_per_mtok": -5}}, "input_per_mtok"),
        ({"prices": {"cached_reads": float("inf")}}, "cached_reads"),
        ({"incidents": [{"at_minute": 1, "what": "clock_jump", "hours": float("inf")}]}, "hours"),
        ({"incidents": [{"what": "finish"}]}, "at_minute is missing"),
        ({"commands": [{"output": "x"}]}, "match is missing"),
        ({"usage": "modest"}, "modest"),
        ({"worker": "genius"}, "genius"),
        ({"incidents": [{"at_minute": 3, "what": "quake"}]}, "quake"),
        ({"incidents": [{"at_minute": 3, "what": "extend", "args": {"minutes": -5}}]}, "above zero"),
        ({"incidents": [{"at_minute": 3, "what": "say"}]}, "nothing to say"),
        ({"incidents": [{"what": "finish"}]}, "at_minute"),
        ({"commands": [{"match": "("}]}, "regular expression"),
        ({"faults": [{"kind": "slow", "seconds": "long"}]}, "seconds"),
        ({"faults": [{"kind": "slow", "steps": 3}]}, "a list"),
        ({"faults": [{"kind": "slow", "from_step": float("inf")}]}, "a whole number"),
        ({"settings": "budget_usd"}, "keys and values"),
        ({"settings": {"tool_user": "root"}}, "tool_user in settings is the simulation's own"),
        (
            {"settings": {"report_reserve_fraction": 5}},
            "in settings, report_reserve_fraction 5 is not",
        ),
        ({"settings": {"disk_limit_percent": 500}}, "disk_limit_percent 500 is not between"),
        ({"settings": {"command_memory_fraction": 9}}, "command_memory_fraction 9 is not between"),
        ({"settings": {"digest_max_tokens": 0}}, "digest_max_tokens 0 is not between"),
        ({"settings": {"repeat_limit": 50, "repeat_window": 10}}, "repeat_limit is above repeat_window"),
        ({"settings": {"prompt": "{{nope}}"}}, "has the blank {{nope}}, which nobody fills"),
        ({"settings": {"prompt": "Go.", "task": "Weigh it."}}, "has no {{task}}"),
        ({"block_probability": 2}, "block_probability 2 is out of range"),
        ({"prices": {"cached_reads": 7}}, "cached_reads 7 is out of range in prices"),
        ({"faults": [{"kind": "slow", "probability": 7}]}, "probability 7 is out of range"),
        ({"faults": [{"kind": "slow", "seconds": -5}]}, "seconds -5 is out of range"),
        ({"faults": [{"kind": "slow", "steps": ["3"]}]}, "'3' in steps is no step"),
        ({"faults": [{"kind": "server", "status": 200}]}, "it must be a refusal"),
        ({"incidents": [{"at_minute": -1, "what": "finish"}]}, "at_minute -1 is out of range"),
        ({"commands": [{"match": "x", "exit_code": -9}]}, "exit_code -9 is out of range"),
    ],
)
def test_a_script_that_cannot_work_is_refused_with_the_key_that_is_wrong(data, word):
    with pytest.raises(LabError, match=word) as refused:
        Script.from_dict(data)
    assert refused.value.code == USAGE


def test_a_number_that_yaml_takes_for_a_text_is_a_number():
    fault = {"kind": "rate_limit", "retry_after_seconds": "1e3"}
    assert Script.from_dict({"faults": [fault]}).faults[0].retry_after_seconds == 1000


def test_a_key_that_stands_twice_in_a_script_is_named(tmp_path):
    (tmp_path / "twice.yml").write_text("faults: [{kind: slow}]\nfaults: [{kind: html}]\n")
    with pytest.raises(LabError, match="faults stands twice"):
        Script.load(tmp_path / "twice.yml")


def test_a_script_of_any_name_gives_a_run_id_that_can_name_a_file():
    result = simulate(Script.from_dict({"name": "../../a script", "latency": SLOW}), seed=-1, minutes=2)
    assert result.summary["run_id"] == "simulated-..-..-a-script--1"


@pytest.mark.parametrize("kind", ["server", "html", "in_body", "reset", "unreachable"])
def test_a_fault_says_what_its_script_lets_it_say(memory, kind):
    fault = {"kind": kind, "steps": [3], "attempts": 1, "purposes": ["worker"], "message": "gone fishing"}
    result = simulate(Script.from_dict({"latency": SLOW, "faults": [fault]}), minutes=4, folder=memory / "s")
    told = result.query("SELECT detail FROM api_requests WHERE step_number = 3 AND status != 'ok'")
    assert "gone fishing" in told[0][0]


def test_a_script_that_is_not_there_is_told_with_those_that_are():
    with pytest.raises(LabError, match="flaky"):
        Script.load("flakey")


def test_the_page_explains_every_fault_and_every_incident():
    assert [word for word in (*TRANSPORT, *REPLY, *INCIDENTS, *USAGES) if f"`{word}`" not in PAGE] == []
