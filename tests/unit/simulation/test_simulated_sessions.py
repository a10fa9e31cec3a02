"""UNIT: whole sessions of the real harness under a virtual clock: how they end, and what has no effect."""

import subprocess
import sys
import threading
from typing import ClassVar

import pytest
from descriptors import opened_below

from harness.phases import PHASES
from labkit.simulation import Script, simulate
from labkit.simulation.session import default_settings
from labkit.simulation.surroundings import Link

pytestmark = pytest.mark.slow

SLOW = {"median_seconds": 20.0, "spread": 0.2, "longest_seconds": 60.0}  # few steps in much time


def script(**keys):
    return Script.from_dict({"latency": SLOW, **keys})


def incident(what, minute=4.0, **more):
    return {"at_minute": minute, "what": what, **more}


def comparable(result):
    return {key: value for key, value in result.as_dict().items() if key != "wall_seconds"}


ENDINGS = {
    "report delivered": ({}, {}),
    "time limit reached": ({"worker": "talker"}, {}),
    "finished by a person": ({"incidents": [incident("finish")]}, {}),
    "stopped by a person": ({"incidents": [incident("stop")]}, {}),
    "interrupted": ({"incidents": [incident("interrupt")]}, {}),
    "disk limit reached": ({"incidents": [incident("disk_full")]}, {}),
    "budget exhausted": ({}, {"budget_usd": 0.008}),
    "wall limit reached": ({"faults": [{"kind": "outage", "from_minute": 4}]}, {}),
    "model unreachable": ({"faults": [{"kind": "refused", "from_minute": 4}]}, {}),
}


@pytest.mark.parametrize("stop_reason", ENDINGS)
def test_a_session_can_be_brought_to_each_of_its_ends_and_has_a_report_then(stop_reason):
    keys, settings = ENDINGS[stop_reason]
    result = simulate(script(**keys), minutes=15, settings=settings)
    assert result.summary["stop_reason"] == stop_reason
    assert result.summary["status"] == "sealed"
    assert result.summary["final_report_written"] is True
    assert sum(phase["steps"] for phase in result.phases) == result.summary["steps"]


def test_the_same_seed_gives_the_same_session_and_another_seed_another():
    first, again, other = (simulate("flaky", seed=seed, minutes=12) for seed in (5, 5, 6))
    assert comparable(first) == comparable(again)
    assert first.events_sha256 != other.events_sha256


def test_a_session_that_is_over_leaves_no_thread_and_no_open_file(memory):
    before = set(threading.enumerate())
    simulate("flaky", minutes=6, folder=memory / "kept")
    assert set(threading.enumerate()) <= before and opened_below(memory) == []


def test_the_same_seed_gives_the_same_session_in_another_process():
    code = (
        "from labkit.simulation import simulate; print(simulate('clumsy', seed=8, minutes=6).events_sha256)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=90
    )
    assert said.stdout.strip() == simulate("clumsy", seed=8, minutes=6).events_sha256


@pytest.mark.parametrize("hours", [24.0, -24.0])
def test_a_wall_clock_that_jumps_by_a_day_changes_time_stamps_and_nothing_else(memory, hours):
    usual = simulate(script(), minutes=15, folder=memory / "usual")
    jumped = simulate(
        script(incidents=[incident("clock_jump", hours=hours)]), minutes=15, folder=memory / "jumped"
    )
    rows = "SELECT id, step_number, elapsed_seconds, phase, event_type, sanitized_output FROM execution_logs"
    assert jumped.query(rows) == usual.query(rows)
    days = "SELECT COUNT(DISTINCT substr(timestamp, 1, 10)) FROM execution_logs"
    assert (usual.query(days), jumped.query(days)) == ([(1,)], [(2,)])


@pytest.mark.parametrize(("minutes", "median"), [(2.0, 2.0), (60.0, 30.0), (48 * 60.0, 1200.0)])
def test_phases_begin_at_their_fractions_whatever_the_length(minutes, median):
    latency = {"median_seconds": median, "spread": 0.1, "longest_seconds": 2 * median}
    settings = {"request_timeout_seconds": 3600}
    quick = {"median_seconds": median / 10, "spread": 0.1, "longest_seconds": median}
    result = simulate(script(latency=latency, command_seconds=quick), minutes=minutes, settings=settings)
    begun = {phase["name"]: phase["began_at"] / (minutes * 60) for phase in result.phases}
    assert list(begun) == [phase.name for phase in PHASES]
    one_step = 6 * median / (minutes * 60)  # the digest may be asked for in it, and its command takes time
    for phase in PHASES:
        assert phase.starts_at <= begun[phase.name] <= phase.starts_at + one_step


def test_an_outage_of_the_provider_is_not_charged_and_a_pause_neither():
    outage = script(faults=[{"kind": "outage", "from_minute": 5, "minutes": 8}])
    away = simulate(outage, minutes=20)
    pause = script(incidents=[incident("pause"), incident("unpause", 9.0)])
    held = simulate(pause, minutes=20)
    for result, minutes in ((away, 8), (held, 5)):
        unpaid = result.simulated_seconds - result.summary["elapsed_seconds"]
        assert (minutes - 1) * 60 < unpaid < (minutes + 2) * 60
        assert result.summary["stop_reason"] == "report delivered"


@pytest.mark.parametrize("kind", ["silent", "drip"])
def test_an_hour_in_which_the_provider_takes_calls_and_says_nothing_is_waited_through(kind):
    mute = script(faults=[{"kind": kind, "from_minute": 10, "minutes": 60, "billed": True}])
    result = simulate(mute, minutes=120)
    assert result.summary["stop_reason"] == "report delivered"
    unpaid = result.simulated_seconds - result.summary["elapsed_seconds"]
    assert 59 * 60 < unpaid < 66 * 60
    assert 10 < result.summary["unknown_cost_requests"] == result.faults[kind] < 30


@pytest.mark.parametrize("kind", ["outage", "silent"])
def test_finish_is_not_kept_waiting_for_an_hour_by_an_outage(kind):
    away = {"kind": kind, "from_minute": 10, "minutes": 60}
    result = simulate(script(faults=[away], incidents=[incident("finish", 20.0)]), minutes=120)
    assert result.summary["stop_reason"] == "finished by a person"
    assert result.summary["final_report_written"] and result.simulated_seconds < 45 * 60


def test_what_a_silent_provider_may_have_billed_stays_within_the_cap():
    mute = script(faults=[{"kind": "silent", "from_minute": 4, "billed": True}])
    result = simulate(mute, minutes=120, settings={"budget_usd": 0.03})
    assert result.summary["stop_reason"] == "budget exhausted"
    assert result.summary["final_report_written"] and result.billed_usd <= 0.03
    assert result.simulated_seconds < 120 * 60


def test_a_provider_that_stays_silent_ends_a_run_at_its_wall_limit():
    result = simulate(script(faults=[{"kind": "silent", "from_minute": 4}]), minutes=15)
    assert result.summary["stop_reason"] == "wall limit reached"
    assert result.summary["final_report_written"] and result.simulated_seconds <= 31 * 60


class Pushed(Link):
    """The link, and every row in the order in which the gateway was given it."""

    rows: ClassVar[list[dict]] = []

    def _call(self, path, body=None):
        answer = super()._call(path, body)
        self.rows.extend((body or {}).get("events", []))
        return answer


def test_a_gateway_that_is_away_for_an_hour_gets_every_event_once_and_in_order(memory, monkeypatch):
    monkeypatch.setattr(Pushed, "rows", [])
    monkeypatch.setattr("labkit.simulation.session.Link", Pushed)
    away = script(incidents=[incident("gateway_away", minutes=60)])
    result = simulate(away, minutes=120, folder=memory / "s")
    assert result.summary["stop_reason"] == "report delivered"
    assert 59 * 60 < result.simulated_seconds - result.summary["elapsed_seconds"] < 66 * 60
    assert [row["id"] for row in Pushed.rows] == list(range(1, result.summary["events"] + 1))
    held = result.query("SELECT * FROM execution_logs ORDER BY id")
    assert [tuple(row.values()) for row in Pushed.rows] == held


def test_nothing_of_a_session_is_executed_on_the_host(memory, monkeypatch):
    """Every way to start a process is closed; a command that would leave a trace leaves none."""

    def refuse(*arguments, **_):
        raise AssertionError(f"started: {arguments}")

    monkeypatch.setattr("subprocess.Popen.__init__", refuse)
    for name in ("system", "fork", "execve", "posix_spawn", "forkpty", "spawnve"):
        monkeypatch.setattr(f"os.{name}", refuse)
    trace = memory / "trace"
    touch = {"kind": "loop", "command": f"touch {trace}", "probability": 0.3, "purposes": ["worker"]}
    result = simulate(script(faults=[touch]), minutes=15, folder=memory / "sandbox")
    assert result.faults["loop"] > 3
    assert result.query("SELECT COUNT(*) FROM execution_logs WHERE command_or_input LIKE 'touch %'")[0][0] > 3
    assert not trace.exists()
    assert "AssertionError" not in str(result.query("SELECT guard_reason FROM execution_logs"))


def test_the_record_names_the_guests_paths_and_never_the_temporary_folder(memory):
    result = simulate("clumsy", minutes=10, folder=memory / "sandbox")
    told = str(result.query("SELECT * FROM execution_logs")) + str(result.query("SELECT * FROM prompts"))
    assert "/sandbox/workspace" in told
    assert str(memory) not in told


def test_a_file_that_the_worker_wrote_can_be_read_back_by_it(memory):
    result = simulate(script(), minutes=30, folder=memory / "sandbox")
    reads = [text for (text,) in result.query(
        "SELECT sanitized_output FROM execution_logs WHERE event_type='TOOL_RESULT' AND tool_name='read_file'"
    )]  # fmt: skip
    assert any(text.startswith("# ") for text in reads)
    assert list((memory / "sandbox/workspace/notes").glob("*.md"))


def test_another_prompt_a_task_and_another_window_take_effect(memory):
    settings = {
        "prompt": "Be brief. {{task}}",
        "task": "Count to ten.",
        "window_max_steps": 4,
        "window_min_steps": 2,
    }
    tried = simulate(script(), minutes=15, settings=settings, folder=memory / "tried")
    usual = simulate(script(), minutes=15)
    ((prompt,),) = tried.query("SELECT content FROM prompts WHERE name = 'worker'")
    assert prompt.startswith("Be brief.")
    assert "Count to ten." in prompt
    assert tried.summary["digest_refreshes"] > usual.summary["digest_refreshes"]
    assert tried.summary["prompt_tokens"] < usual.summary["prompt_tokens"]


def test_a_session_that_was_killed_goes_on_in_its_folder_with_its_clocks(memory):
    """The process ends without a word in the middle of a command."""
    killer = "import os; from labkit.simulation import simulate\n"
    killer += "from labkit.simulation.surroundings import Shell\n"
    killer += "done = Shell.run\n"
    killer += "def run(self, *a): return os._exit(9) if self.commands == 12 else done(self, *a)\n"
    killer += "Shell.run = run\n"
    killer += "import pathlib, sys; simulate('honest', seed=3, minutes=20, folder=pathlib.Path(sys.argv[1]))"
    ended = subprocess.run([sys.executable, "-c", killer, str(memory / "s")], timeout=90, check=False)
    assert ended.returncode == 9
    result = simulate("honest", seed=3, minutes=20, folder=memory / "s", resume=True)
    assert result.summary["final_report_written"]
    rows = result.query("SELECT elapsed_seconds, timestamp FROM execution_logs ORDER BY id")
    assert rows == sorted(rows)
    assert result.query("SELECT COUNT(*) FROM execution_logs WHERE event_type = 'RESUMED'") == [(1,)]


def test_what_silent_calls_may_have_cost_and_their_time_outlive_a_kill_before_the_next_checkpoint(memory):
    killer = """
import os, pathlib, sys
from labkit.simulation import Script, simulate
from labkit.simulation.provider import Provider
usual = Provider._wait
def wait(self, call, *more):
    return os._exit(9) if call.step == 9 and call.attempt == 9 else usual(self, call, *more)
Provider._wait = wait
faults = [{"kind": "silent", "steps": [9], "purposes": ["worker"]}]
simulate(Script.from_dict({"faults": faults}), minutes=120, folder=pathlib.Path(sys.argv[1]))
"""
    ended = subprocess.run([sys.executable, "-c", killer, str(memory / "s")], timeout=90, check=False)
    assert ended.returncode == 9
    result = simulate(Script.from_dict({}), minutes=120, folder=memory / "s", resume=True)
    ((calls,),) = result.query("SELECT COUNT(*) FROM api_requests WHERE cost_usd IS NULL")
    state = dict(result.query("SELECT key, value FROM session_state"))
    usual = default_settings()
    least = usual["max_completion_tokens"] * usual["price_output_per_mtok"] / 1e6
    assert calls == 8 and float(state["unknown_usd"]) > calls * least
    assert result.summary["stop_reason"] == "report delivered"
    silent = float(state["wall_seconds"]) - float(state["elapsed_seconds"])
    assert silent >= 8 * usual["request_timeout_seconds"]
