"""HOST: a paused guest, a killed harness and a frozen one: noticed within a minute, repaired; one run."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import guest_lab
import pytest

from labkit.gateway.files import read_lines
from labkit.gateway.watchdog import FILE_NAME
from labkit.guest import Hypervisor

NOTICED_SECONDS = 60
REPAIRED_SECONDS = 600  # four minutes lie between two repairs
SIGNAL = "systemctl kill --signal={} lab-harness.service"


def pause(lab) -> None:
    with Hypervisor() as hypervisor:
        hypervisor.domain(lab.config.name).suspend()


soak = guest_lab.only_in_soak("ten minutes")
BROKEN: dict[str, tuple[Callable, str]] = {
    "paused": (pause, "guest paused"),
    "killed": (lambda lab: lab.ssh(SIGNAL.format("KILL")), "silent"),
    "frozen": (lambda lab: lab.ssh(SIGNAL.format("STOP")), "silent"),
}


def wait_for(what: str, seconds: float, found: Callable[[], Any]) -> Any:
    """What `found` returns once it is true; AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := found():
            return answer
        time.sleep(1)
    raise AssertionError(f"not within {seconds:.0f} s: {what}")


def lines(session: Path, what: str) -> list[dict]:
    return [item for item in read_lines(session / FILE_NAME) if item["what"] == what]


def charged(session: Path) -> float:
    """Active seconds at the last row that came."""
    return list(read_lines(session / "events.jsonl"))[-1]["elapsed_seconds"]


def steps(lab) -> int:
    return lab.lab("status", "--json").json["step"]


@pytest.fixture(scope="module")
def session(lab, built) -> Path:
    """The gateway's folder of a session that is at its third step."""
    words = ("run", "--model", "rehearsal", "--minutes", "30", "--discard", "--detach", "--json")
    folder = lab.config.gateway_dir / lab.lab(*words).json["run"]
    wait_for("step 3", 240, lambda: steps(lab) >= 3)
    return folder


@pytest.mark.parametrize("how", ["paused", *(pytest.param(how, marks=soak) for how in ("killed", "frozen"))])
def test_what_breaks_a_session_is_noticed_within_a_minute_and_repaired(lab, session, how):
    break_it, trouble = BROKEN[how]
    noticed, repaired = len(lines(session, "trouble")), len(lines(session, "heard again"))
    before, began = charged(session), time.time()
    break_it(lab)
    wait_for("the trouble", NOTICED_SECONDS, lambda: len(lines(session, "trouble")) > noticed)
    assert lines(session, "trouble")[noticed]["trouble"] == trouble
    wait_for(
        "the session heard again", REPAIRED_SECONDS, lambda: len(lines(session, "heard again")) > repaired
    )
    step = steps(lab)  # from here on: it went on between the look before and the break
    wait_for("two steps more", REPAIRED_SECONDS, lambda: steps(lab) > step + 1)
    broken = lines(session, "repair")[-1]["epoch"] - began
    assert broken > 30
    assert charged(session) - before < time.time() - began - broken / 2, "what it stood still is not charged"


def test_after_all_that_it_is_one_run_that_can_be_verified(lab, session):
    lab.lab("finish", "--why", "broken often enough")
    summary = lab.lab("watch", "--json", code=None, seconds=900).json
    assert summary["run_id"] == session.name and summary["status"] == "sealed"
    assert summary["final_report_written"] is True
    folder = Path(lab.lab("collect", "--json").json["folder"])
    rows = [json.loads(line) for line in (session / "events.jsonl").read_text().splitlines()]
    assert sorted(row["id"] for row in rows) == list(range(1, len(rows) + 1))
    resumed = [row["event_type"] for row in rows].count("RESUMED")
    assert resumed == (2 if guest_lab.SOAK else 0), "a guest that was paused just goes on"
    lab.lab("verify", str(folder))
