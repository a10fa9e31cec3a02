"""TESTS: what a person asks of a session: a real harness, a real gateway, the files in between."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harness_run import Run, run_settings, start

from labkit.errors import LabError
from labkit.gateway import commands

TOKEN = "run-token-of-this-test"  # of conftest's gateways
ME = {"by": "cli", "user": "ada", "tty": "/dev/pts/3", "host": "bench"}
pytestmark = pytest.mark.skipif(os.name != "posix", reason="runs the harness")


def answer(command: str) -> dict:
    """A provider that has the Worker run this one command, step after step."""
    call = {"name": "execute_shell", "arguments": json.dumps({"command": command})}
    message = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c1", "type": "function", "function": call}],
    }
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "cost": 0.0001}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return {
        "id": "r",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    }


class Live:
    """A gateway, a harness that runs against it, and a look at the record of both."""

    def __init__(self, gateway, settings: dict) -> None:
        self.gateway, self.settings = gateway, settings
        self.process = start(settings)
        self.run = Run(Path(settings["sandbox"]))

    def ask(self, name: str, why: str = "", **args: object) -> int:
        return commands.append(self.gateway.folder, name, args, who=ME, why=why)

    def states(self) -> list[str]:
        return [item["state"] for item in commands.listed(self.gateway.folder)]

    def rows(self, sql: str) -> list[tuple]:
        try:
            return self.run.rows(sql, "telemetry/run.db")
        except sqlite3.Error:
            return []

    def steps(self) -> int:
        return (self.rows("SELECT COALESCE(MAX(step_number), 0) FROM execution_logs") or [(0,)])[0][0]

    def told(self) -> list[dict]:
        rows = self.rows("SELECT command_or_input FROM execution_logs WHERE event_type='COMMAND' ORDER BY id")
        return [json.loads(line) for (line,) in rows]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def again(self) -> None:
        self.process = start(self.settings)

    def end(self) -> dict:
        talk, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, talk
        return self.run.summary


def until(condition: Callable[[], object], seconds: float = 40.0) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not come to that"
        time.sleep(0.05)


@pytest.fixture
def live(tmp_path, run_gateway, upstream, monkeypatch):
    monkeypatch.setenv("LAB_TEST_KEY", "k")
    started: list[Live] = []

    def begin(command: str, **changes: object) -> Live:
        upstream.answers(answer(command))
        gateway = run_gateway(provider="paid", base_url=upstream.url, key_env="LAB_TEST_KEY", minutes=5)
        models = {"model": "test/model", "inspector_model": "test/model"}
        wanted = {"minutes": 5, "token": TOKEN, "command_timeout_seconds": 60, "repeat_limit": 100}
        settings = run_settings(tmp_path / "sandbox", gateway.url, **models | wanted | changes)
        started.append(Live(gateway, settings))
        return started[-1]

    yield begin
    for one in started:
        if one.process.poll() is None:
            one.kill()


def test_stop_ends_a_running_command_and_seals_at_once_with_who_and_why_in_the_record(live):
    session = live("touch started; sleep 50")
    until((session.run.sandbox / "workspace/started").exists)
    asked = time.monotonic()
    session.ask("stop", "the disk is needed")
    summary = session.end()
    assert time.monotonic() - asked < 20, "the command was not waited for"
    assert summary["stop_reason"] == "stopped by a person"
    assert (summary["final_report_written"], summary["final_report_by"]) == (True, "harness")
    (told,) = [json.loads(line) for line in session.run.events("COMMAND", "command_or_input")]
    assert told == {"id": 1, "name": "stop", "args": {}, "who": ME, "why": "the disk is needed"}
    assert session.states() == ["acknowledged"]


def test_finish_gives_a_running_command_some_seconds_and_then_the_final_phase_begins(live):
    session = live("touch started; sleep 50")
    until((session.run.sandbox / "workspace/started").exists)
    session.ask("finish")
    until(lambda: session.rows("SELECT 1 FROM execution_logs WHERE phase='FINAL_REPORT'"), 20)
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
    until(lambda: session.steps() >= 2)
    session.ask("pause", "lunch")
    until(lambda: session.states() == ["acknowledged"])
    held_at, elapsed = session.steps(), "SELECT MAX(elapsed_seconds) FROM execution_logs"
    charged = session.rows(elapsed)[0][0]
    time.sleep(3)
    session.ask("say", text="Look at the cache first.")
    until(lambda: session.states()[-1] == "acknowledged")
    assert session.steps() == held_at
    session.ask("unpause")
    until(lambda: session.steps() > held_at)
    assert session.rows(elapsed)[0][0] < charged + 2.5, "three seconds of pause are not charged"
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
    session = live("sleep 0.1", minutes=0.1)
    session.ask("pause")
    assert session.end()["stop_reason"] == "wall limit reached"
    assert session.run.summary["elapsed_seconds"] < 6


def test_the_gateways_own_cap_and_wall_limit_rise_with_an_extension(run_gateway):
    running = run_gateway(budget_usd=0.0000001)
    assert running.chat().status_code == 402
    commands.append(running.folder, "extend", {"budget_usd": 1.0}, who=ME)
    assert running.chat().status_code == 200
    config = running.config
    over = config.started + 2 * config.minutes * 60 + 31 * 60
    assert config.wall_over(over) and not config.wall_over(over, extra_minutes=60)


def test_a_request_that_is_repeated_with_its_key_is_one_command(tmp_path):
    assert commands.append(tmp_path, "extend", {"minutes": 5}, key="k1") == 1
    assert commands.append(tmp_path, "extend", {"minutes": 5}, key="k1") == 1
    assert commands.extension(tmp_path) == (5.0, 0.0)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("dance", {}),
        ("stop", {"text": "x"}),
        ("say", {"text": "  "}),
        ("say", {"text": "x" * 5000}),
        ("say", {}),
        ("extend", {}),
        ("extend", {"minutes": -1}),
        ("extend", {"minutes": float("nan")}),
        ("extend", {"budget_usd": True}),
        ("extend", {"minutes": 1e9}),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_queued(tmp_path, name, args):
    with pytest.raises(LabError):
        commands.append(tmp_path, name, args)
    assert commands.listed(tmp_path) == []


def test_the_guest_can_acknowledge_only_what_it_was_told(run_gateway):
    running = run_gateway()
    for name in ("pause", "unpause"):
        commands.append(running.folder, name)
    ack = lambda upto: running.http.post("/v1/commands/ack", json={"acknowledged": upto})  # noqa: E731
    assert ack(1).status_code == 400
    assert len(running.http.get("/v1/commands?after=0").json()["commands"]) == 2
    assert ack(1).json() == {"acknowledged": 1}
    assert [item["state"] for item in commands.listed(running.folder)] == ["acknowledged", "delivered"]
    running.stop()
    running.start()
    assert ack(2).json() == {"acknowledged": 2}
    assert [item["state"] for item in commands.listed(running.folder)] == ["acknowledged"] * 2
    assert ack("2").status_code == 400 and ack(3).status_code == 400
