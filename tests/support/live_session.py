"""TESTS: a session that a person can ask something: real harness, real gateway, a provider of one command."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from harness_run import Run, run_settings, start

from labkit.gateway import commands

TOKEN = "run-token-of-this-test"  # of conftest's gateways
ME = {"by": "cli", "user": "ada", "tty": "/dev/pts/3", "host": "bench"}


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
