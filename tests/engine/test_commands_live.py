"""TESTS: what a person asks of a session: a real harness, a real gateway, the files in between."""
# ruff: noqa: F401, F811 - fixtures are imported by their names

from __future__ import annotations

import contextlib
import json
import sqlite3
import time

from gateway_process import make_config, run_gateway, upstream
from live_session import live
from loopback import until

from labkit.gateway import commands


def test_finish_gives_a_running_command_some_seconds_and_then_the_final_phase_begins(live):
    session = live("touch started; sleep 50")
    until((session.run.sandbox / "workspace/started").exists)
    session.ask("finish")
    until(lambda: session.rows("SELECT 1 FROM execution_logs WHERE phase='FINAL_REPORT'"))
    (result,) = session.rows(
        "SELECT sanitized_output FROM execution_logs WHERE event_type='TOOL_RESULT' ORDER BY id LIMIT 1"
    )
    assert "asked to finish" in result[0]
    session.ask("stop")
    session.end()


def test_a_pause_holds_between_steps_is_not_charged_and_what_is_said_meanwhile_reaches_the_worker(
    live, upstream
):
    session = live("sleep 0.1")
    until(lambda: session.steps() >= 1)
    began, elapsed = time.monotonic(), "SELECT MAX(elapsed_seconds) FROM execution_logs"
    seen = session.steps()
    until(lambda: session.steps() > seen)
    charged = session.rows(elapsed)[0][0]  # of a row that is younger than `began`
    session.ask("pause", "lunch")
    until(lambda: session.states() == ["acknowledged"])
    held_at = session.steps()
    time.sleep(4)
    session.ask("say", text="Look at the cache first.")
    until(lambda: session.states()[-1] == "acknowledged")
    assert session.steps() == held_at
    session.ask("unpause")
    until(lambda: session.steps() > held_at)
    charged, lasted = session.rows(elapsed)[0][0] - charged, time.monotonic() - began
    assert charged < lasted - 3.5, "four seconds of pause are not charged"
    until(lambda: any("Look at the cache first." in json.dumps(body) for _, body in upstream.seen))
    spoken = next(b["messages"] for _, b in upstream.seen if "Look at the cache first." in json.dumps(b))
    said = [m["content"] for m in spoken if "Look at the cache" in str(m["content"])]
    assert len(said) == 1 and said[0].startswith("[Message from the person")
    session.ask("stop")
    session.end()


def test_commands_asked_during_outages_and_kills_arrive_in_order_and_have_their_effect_once(live):
    session = live("sleep 0.1")
    until(lambda: session.steps() >= 1)
    session.gateway.kill()
    asked = [session.ask("extend", minutes=10), session.ask("extend", minutes=20), session.ask("pause")]
    session.gateway.start()
    until(lambda: len(session.told()) == 3)
    session.kill()  # perhaps before the checkpoint that holds their effects
    session.ask("extend", minutes=30, budget_usd=2)
    session.again()
    until(lambda: session.states() == ["acknowledged"] * 4)
    held_at = session.steps()
    time.sleep(1)
    assert session.steps() == held_at, "a pause outlives a kill"
    session.ask("stop")
    session.end()
    told = [json.loads(line) for line in session.run.events("COMMAND", "command_or_input")]
    assert [one["id"] for one in told] == [*asked, 4, 5]
    state = dict(session.run.rows("SELECT key, value FROM session_state"))
    assert float(state["length_seconds"]) == (5 + 10 + 20 + 30) * 60
    assert float(state["budget_usd"]) == 5.0 + 2


def test_a_kill_between_the_record_and_the_checkpoint_loses_no_effect_and_repeats_no_command(live):
    session = live("sleep 0.1")
    until(lambda: session.steps() >= 1)
    session.kill()
    session.ask("extend", "the record has it, the checkpoint does not", minutes=10)
    command = json.dumps(commands.after(session.gateway.folder, 0)[0])
    with contextlib.closing(sqlite3.connect(session.run.sandbox / "telemetry/run.db")) as db, db:
        db.execute(
            "INSERT INTO execution_logs (step_number, elapsed_seconds, phase, event_type, command_or_input)"
            " SELECT step_number, elapsed_seconds, phase, 'COMMAND', ? FROM execution_logs"
            " ORDER BY id DESC LIMIT 1",
            [command],
        )
    session.gateway.http.get("/v1/commands?after=0")  # the dead harness had been told
    session.again()
    until(lambda: session.states() == ["acknowledged"])
    session.ask("stop")
    session.end()
    told = [json.loads(line)["id"] for line in session.run.events("COMMAND", "command_or_input")]
    state = dict(session.run.rows("SELECT key, value FROM session_state"))
    assert told == [1, 2] and float(state["length_seconds"]) == 15 * 60


def test_a_pause_that_nobody_ends_is_ended_by_the_wall_limit(live):
    began = time.monotonic()
    session = live("sleep 0.1", minutes=0.1)
    session.ask("pause")
    assert session.end()["stop_reason"] == "wall limit reached"
    lasted = time.monotonic() - began  # twelve seconds, half of them paused at least, and the start
    assert session.run.summary["elapsed_seconds"] < lasted - 5
