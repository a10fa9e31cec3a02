"""Runs whole harness sessions natively, for tests: a sandbox in a temporary folder, `python -m harness`."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

from scripted_gateway import TOKEN

ROOT = Path(__file__).parents[2]


def run_settings(sandbox: Path, url: str = "http://127.0.0.1:9", **changes: object) -> dict:
    """A complete run.json for a native run without a change of user."""
    settings = {
        "run_id": "20261129-201202-b0dd88",
        "minutes": 0.15,
        "budget_usd": 5.0,
        "gateway_url": url,
        "token": TOKEN,
        "model": "scripted/worker",
        "inspector_model": "scripted/inspector",
        "price_input_per_mtok": 0.10,
        "price_output_per_mtok": 0.20,
        "max_completion_tokens": 512,
        "request_timeout_seconds": 20,
        "task": None,
        "prompt": None,
        "sandbox": str(sandbox),
        "tool_user": None,
        "backup_command": ["/bin/echo", "gen-00001"],
        "window_max_steps": 6,
        "window_min_steps": 2,
        "digest_max_tokens": 200,
        "backup_every_steps": 5,
        "nudge_every_minutes": 15,
        "command_timeout_seconds": 10,
        "command_memory_fraction": 0.75,
        "command_max_processes": 512,
        "disk_limit_percent": 100,
        "report_reserve_fraction": 0.10,
        "repeat_limit": 3,
        "repeat_window": 6,
        "output_limit_chars": 2000,
        "network_programs": ["curl", "wget", "git", "pip", "apt-get", "nc"],
    }
    return settings | changes


class Run:
    """A finished (or running) session and what it left."""

    def __init__(self, sandbox: Path) -> None:
        self.sandbox = sandbox
        self.notes = sandbox / "workspace" / "notes"

    @property
    def summary(self) -> dict:
        return json.loads((self.sandbox / "telemetry" / "summary.json").read_text())

    def rows(self, sql: str, db: str = "telemetry/sealed/run.db") -> list[tuple]:
        connection = sqlite3.connect(self.sandbox / db)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    def events(self, word: str, columns: str = "sanitized_output") -> list:
        found = self.rows(f"SELECT {columns} FROM execution_logs WHERE event_type='{word}' ORDER BY id")
        return [row[0] if len(row) == 1 else row for row in found]


def start(settings: dict, step_seconds: float | None = None) -> subprocess.Popen:
    """step_seconds: on a clock that is moved on so far by each call of the Worker, and by nothing else."""
    sandbox = Path(settings["sandbox"])
    sandbox.mkdir(parents=True, exist_ok=True)
    file = sandbox / "run.json"
    file.write_text(json.dumps(settings))
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "HOME": str(sandbox),
    }
    stepped = [str(Path(__file__).with_name("stepped_harness.py")), str(step_seconds)]
    return subprocess.Popen(
        [sys.executable, *(["-m", "harness"] if step_seconds is None else stepped), str(file)],
        cwd=sandbox,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run_session(settings: dict, seconds: float = 100, step_seconds: float | None = None) -> Run:
    """Run to the end; fails when the process does not exit 0."""
    process = start(settings, step_seconds)
    talk, _ = process.communicate(timeout=seconds)
    assert process.returncode == 0, talk
    return Run(Path(settings["sandbox"]))
