"""TESTS: a session that dies or freezes is brought back by its gateway's watchdog and goes on to its end."""
# ruff: noqa: F401, F811 - fixtures are imported by their names

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from pathlib import Path

import pytest
from gateway_process import TOKEN, make_config, run_gateway
from harness_run import run_settings, start
from loopback import until
from watched_gateway import guarded, told

from labkit.gateway import watchdog


@pytest.mark.skipif(os.name != "posix", reason="runs the harness")
@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_a_killed_or_frozen_harness_is_restarted_and_the_run_goes_on_to_its_end(guarded, tmp_path, how):
    settings = run_settings(
        tmp_path / "sandbox", minutes=0.15, token=TOKEN, model="test/model", inspector_model="test/model"
    )
    Path(settings["sandbox"]).mkdir()
    pids, file = tmp_path / "pid", Path(settings["sandbox"]) / "run.json"
    repair = (
        "bash",
        "-c",
        f"kill -9 $(cat {pids}); sleep 0.2; setsid {shlex.quote(sys.executable)} -m harness {file} & disown",
    )
    # Patient enough for a start of the harness on a machine that has no time for it.
    running = guarded({"first": 60, "silent": 5, "repair": 6, "stuck": 30, "pause": 60}, repair=repair)
    settings["gateway_url"] = running.url
    harness = start(settings)
    pids.write_text(str(harness.pid))
    until(lambda: '"TOOL_RESULT"' in (running.folder / "events.jsonl").read_text())
    os.kill(harness.pid, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
    until(lambda: "trouble" in told(running.folder))
    until(lambda: '"RUN_SEALED"' in (running.folder / "events.jsonl").read_text(), 60)
    harness.wait()
    harness.stdout.close()
    words = [
        json.loads(line)["event_type"] for line in (running.folder / "events.jsonl").read_text().splitlines()
    ]
    assert words.count("RESUMED") == 1 and words.count("RUN_STARTED") == 1
    assert told(running.folder)[:3] == ["trouble", "repair", "repaired"]
    until(lambda: watchdog.unresolved(running.folder) == "")
