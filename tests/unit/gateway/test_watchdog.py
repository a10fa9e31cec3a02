"""TESTS: a session that falls silent, hangs or dies is noticed, told, repaired or given up."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harness_run import run_settings, start

from labkit.gateway import process, watchdog
from labkit.gateway.files import read_lines
from labkit.gateway.helpers import BUSY, Helpers

TOKEN = "run-token-of-this-test"  # of conftest's gateways
QUICK = {"look": 0.1, "silent": 2.5, "stuck": 3.0, "first": 2.0, "repair": 3.0, "repair_stuck": 4.0, "pause": 0.5, "give_up": 4.5}  # fmt: skip  # noqa: E501


def told(folder: Path) -> list[str]:
    return [item["what"] for item in read_lines(folder / watchdog.FILE_NAME)]


def kinds(folder: Path) -> list[str]:
    return [item["trouble"] for item in read_lines(folder / watchdog.FILE_NAME) if item["what"] == "trouble"]


def until(condition: Callable[[], object], seconds: float = 40.0) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not come to that"
        time.sleep(0.05)


def python(*lines: str) -> tuple[str, ...]:
    return (sys.executable, "-c", "\n".join(lines))


def says(word: str) -> tuple[str, ...]:
    return python(f"print({word!r})")


@pytest.fixture
def guarded(run_gateway):
    """Starts a gateway whose watchdog is impatient and has these helpers."""

    def begin(limits: dict | None = None, **helpers: tuple[str, ...]):
        running = run_gateway()
        running.stop()
        wanted = Helpers(**helpers, limits=QUICK | (limits or {}))
        process.start(running.folder, running.config, helpers=wanted)
        return running

    return begin


def test_the_shipped_limits_notice_within_a_minute():
    limits = watchdog.Limits()
    assert limits.silent + 2 * limits.look + 20 <= 60 and limits.stuck + 2 * limits.look <= 60


@pytest.mark.parametrize("state", ["paused", "off"])
def test_a_guest_that_went_away_is_named_by_its_state(guarded, state):
    running = guarded(guest=says(state))
    running.http.get("/v1/commands?after=0")
    until(lambda: told(running.folder))
    assert kinds(running.folder) == [f"guest {state}"]
    assert state in watchdog.unresolved(running.folder)
    kept = [line for line in read_lines(running.folder / "ledger.jsonl") if line["kind"] == "watchdog"]
    assert kept[0]["body"]["trouble"] == f"guest {state}"
    running.http.get("/v1/commands?after=0")
    until(lambda: told(running.folder)[-1] == "heard again")
    assert watchdog.unresolved(running.folder) == ""


def test_a_helper_that_knows_nothing_takes_nothing_away(guarded):
    running = guarded(guest=python("import sys; sys.exit(3)"))
    running.http.get("/v1/commands?after=0")
    until(lambda: told(running.folder))
    assert kinds(running.folder) == ["silent"]


def test_a_loop_that_hangs_is_noticed_although_its_thread_still_asks(guarded):
    running = guarded()
    for quiet in range(1, 6):
        running.http.get("/v1/commands?after=0", headers={"lab-quiet": str(quiet)})
        time.sleep(0.2)
    until(lambda: "stuck" in kinds(running.folder), 5)


def test_a_session_that_lives_raises_no_alarm(guarded):
    running = guarded()
    for _ in range(9):
        running.http.get("/v1/commands?after=0", headers={"lab-quiet": "0"})
        time.sleep(0.4)
    assert told(running.folder) == []


def test_a_repair_that_another_command_kept_out_is_no_attempt_and_three_failed_ones_are_the_last(
    guarded, tmp_path
):
    count = tmp_path / "count"
    script = python(
        "import pathlib, sys",
        f"count = pathlib.Path({str(count)!r})",
        "before = int(count.read_text()) if count.exists() else 0",
        "count.write_text(str(before + 1))",
        "print('nothing helps')",
        f"sys.exit({BUSY} if before < 2 else 1)",
    )
    sealed = tmp_path / "sealed"
    running = guarded(
        repair=script, seal=python(f"open({str(sealed)!r}, 'w').write('x')", "print('at home')")
    )
    running.push(
        {**dict.fromkeys(watchdog_columns()), "id": 1, "event_type": "RUN_STARTED", "step_number": 7}
    )
    until(sealed.exists)
    until(lambda: "collected" in told(running.folder))
    assert count.read_text() == "5", "two kept out, three that failed"
    outside = json.loads((running.folder / watchdog.OUTSIDE).read_text())
    assert (outside["status"], outside["steps"], outside["events"]) == ("unsealed", 7, 1)
    assert "nothing was heard" in outside["reason"]
    assert told(running.folder).count("given up") == 1


def watchdog_columns() -> tuple[str, ...]:
    from labkit.gateway.ledger import COLUMNS

    return COLUMNS


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
    running = guarded({"pause": 20}, repair=repair)
    settings["gateway_url"] = running.url
    harness = start(settings)
    pids.write_text(str(harness.pid))
    until(lambda: '"TOOL_RESULT"' in (running.folder / "events.jsonl").read_text())
    os.kill(harness.pid, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
    until(lambda: "trouble" in told(running.folder), 20)
    until(lambda: '"RUN_SEALED"' in (running.folder / "events.jsonl").read_text(), 60)
    harness.wait()
    harness.stdout.close()
    words = [
        json.loads(line)["event_type"] for line in (running.folder / "events.jsonl").read_text().splitlines()
    ]
    assert words.count("RESUMED") == 1 and words.count("RUN_STARTED") == 1
    assert told(running.folder)[:3] == ["trouble", "repair", "repaired"]
    until(lambda: watchdog.unresolved(running.folder) == "")
