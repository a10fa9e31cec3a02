"""TESTS: a session that falls silent, hangs or dies is noticed, told, repaired or given up."""

from __future__ import annotations

import json
import sys
import time

import pytest
from loopback import until
from watched_gateway import kinds, told

from labkit.gateway import watchdog
from labkit.gateway.files import read_lines
from labkit.gateway.helpers import BUSY

pytestmark = pytest.mark.slow


def python(*lines: str) -> tuple[str, ...]:
    return (sys.executable, "-c", "\n".join(lines))


def says(word: str) -> tuple[str, ...]:
    return python(f"print({word!r})")


def test_the_shipped_limits_notice_within_a_minute():
    limits = watchdog.Limits()
    assert limits.silent + 2 * limits.look + 20 <= 60 and limits.stuck + 2 * limits.look <= 60


@pytest.mark.parametrize("state", ["paused", "off"])
def test_a_guest_that_went_away_is_named_by_its_state(guarded, state):
    running = guarded({"silent": 1.0}, guest=says(state))
    running.http.get("/v1/commands?after=0")
    until(lambda: told(running.folder))
    assert kinds(running.folder) == [f"guest {state}"]
    assert state in watchdog.unresolved(running.folder)
    kept = [line for line in read_lines(running.folder / "ledger.jsonl") if line["kind"] == "watchdog"]
    assert kept[0]["body"]["trouble"] == f"guest {state}"
    until(lambda: running.http.get("/v1/commands?after=0") and "heard again" in told(running.folder))
    until(lambda: running.http.get("/v1/commands?after=0") and watchdog.unresolved(running.folder) == "")


def test_a_helper_that_knows_nothing_takes_nothing_away(guarded):
    running = guarded({"silent": 1.0}, guest=python("import sys; sys.exit(3)"))
    running.http.get("/v1/commands?after=0")
    until(lambda: told(running.folder))
    assert kinds(running.folder) == ["silent"]


def test_a_loop_that_hangs_is_noticed_although_its_thread_still_asks(guarded):
    running = guarded()
    asks = lambda: running.http.get("/v1/commands?after=0", headers={"lab-quiet": "5"})  # noqa: E731
    until(lambda: asks() and "stuck" in kinds(running.folder))


def test_a_session_that_lives_raises_no_alarm(guarded):
    running = guarded()
    longest, heard = 0.0, time.monotonic()
    for _ in range(9):
        running.http.get("/v1/commands?after=0", headers={"lab-quiet": "0"})
        longest, heard = max(longest, time.monotonic() - heard), time.monotonic()
        time.sleep(0.4)
    assert told(running.folder) == [] or longest > 1.5, "unless this machine itself stood still"


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
    until(sealed.exists, 90)
    until(lambda: "collected" in told(running.folder))
    assert count.read_text() == "5", "two kept out, three that failed"
    outside = json.loads((running.folder / watchdog.OUTSIDE).read_text())
    assert (outside["status"], outside["steps"], outside["events"]) == ("unsealed", 7, 1)
    assert "nothing was heard" in outside["reason"]
    assert told(running.folder).count("given up") == 1


def watchdog_columns() -> tuple[str, ...]:
    from labkit.gateway.rows import COLUMNS

    return COLUMNS
