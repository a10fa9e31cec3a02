"""HOST: a second session in the guest as the first left it (no test before may revert), ended by a person."""

import threading
import time
from pathlib import Path

import pytest

from labkit.errors import NOT_READY

LONG_MINUTES = "30"


@pytest.fixture(scope="module")
def kept(lab, collected):
    """A `lab run --keep` in the foreground: its thread, and what the command did once it is over."""
    done = []
    words = ("run", "--keep", "--model", "rehearsal", "--minutes", LONG_MINUTES, "--json")
    thread = threading.Thread(target=lambda: done.append(lab.lab(*words, code=None, seconds=1800)))
    thread.start()
    yield thread, done
    if thread.is_alive():
        lab.lab("finish", code=None)
        thread.join(240)


@pytest.fixture(scope="module")
def working(lab, kept, collected):
    """What `lab status` says once the second session has done a few steps."""
    deadline = time.monotonic() + 480
    while time.monotonic() < deadline and kept[0].is_alive():
        known = lab.lab("status", "--json").json
        is_ours = known["run"] not in (None, collected.name)
        if is_ours and known["step"] >= 3 and known["at_work"] is None:  # its start is over and holds no lock
            return known
        time.sleep(3)
    raise AssertionError("the second session did not get going")


def test_a_session_that_runs_is_not_collected(lab, working):
    done = lab.lab("collect", code=NOT_READY)
    assert "the session is still running" in done.err and "`lab finish`" in done.err
    assert lab.lab("status", "--json").json["gateway_alive"] is True


def test_finish_brings_the_session_to_its_report_and_the_view_to_its_end(lab, kept, working):
    lab.lab("finish")
    kept[0].join(500)
    (done,) = kept[1]
    assert done.code == 0
    assert done.json["stop_reason"] == "finished by a person"
    assert done.json["final_report_written"] is True and done.json["run_id"] == working["run"]


def test_the_second_run_is_a_run_of_its_own_in_the_workspace_of_the_first(lab, collected, working, sealed):
    folder = Path(lab.lab("collect", "--json").json["folder"])
    assert folder.name == working["run"] != collected.name
    first = (collected / "workspace" / sealed["final_report"]).read_bytes()
    assert (folder / "workspace" / sealed["final_report"]).read_bytes() == first
    listed = {run["run_id"] for run in lab.lab("runs", "--json").json}
    assert {folder.name, collected.name} <= listed
