"""HOST: a session that outlives its gateway and then its host going down, and is one run at the end."""

import json
import os
import signal
import time
from pathlib import Path

import guest_lab
import pytest

from labkit.gateway import pidfile
from labkit.gateway.config import GatewayConfig
from labkit.guest import Hypervisor

pytestmark = guest_lab.only_in_soak("six minutes")

MINUTES = "4"
SETTINGS = "cat /etc/lab-harness/run.json"


def wait_for_step(lab, step: int) -> dict:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        known = lab.lab("status", "--json").json
        if known["step"] >= step:
            return known
        time.sleep(3)
    raise AssertionError(f"the session did not get to step {step}")


def kill_gateway(folder: Path) -> None:
    os.kill(pidfile.read(folder), signal.SIGKILL)


@pytest.fixture(scope="module")
def broken(lab, built):
    """A run whose gateway is killed and comes back, and whose host then goes down, network and all."""
    words = ("run", "--model", "rehearsal", "--minutes", MINUTES, "--discard", "--detach", "--json")
    run_id = lab.lab(*words).json["run"]
    folder = lab.config.gateway_dir / run_id
    wait_for_step(lab, 3)
    seen = {"folder": folder, "token": json.loads(lab.ssh(SETTINGS))["token"]}
    kill_gateway(folder)
    seen["without a gateway"] = lab.lab("status").out
    seen["gateway back"] = lab.lab("run", "--resume", run_id, "--detach", "--json").json
    seen["same token"] = json.loads(lab.ssh(SETTINGS))["token"]
    seen["step"] = wait_for_step(lab, lab.lab("status", "--json").json["step"] + 2)["step"]
    with Hypervisor() as hypervisor:
        hypervisor.stop(lab.config.name)
        hypervisor.network(lab.config.name).destroy()  # defined and down, as libvirt has it after a reboot
    kill_gateway(folder)
    seen["without a guest"] = lab.lab("status").out
    return seen


@pytest.fixture(scope="module")
def resumed(lab, broken):
    """The summary of that run, after it was resumed and went to its end."""
    lab.lab("run", "--resume", "last", "--detach")
    broken["new token"] = json.loads(lab.ssh(SETTINGS))["token"]
    return lab.lab("watch", "--json").json


def test_status_says_how_to_go_on_whatever_broke(broken):
    command = f"`lab run --resume {broken['folder'].name}`"
    assert (
        command in broken["without a gateway"]
        and "the gateway of the run is gone" in broken["without a gateway"]
    )
    assert command in broken["without a guest"] and "stopped in the middle" in broken["without a guest"]


def test_a_session_that_only_lost_its_gateway_keeps_its_token(broken):
    assert broken["gateway back"] == {"run": broken["folder"].name}
    assert broken["same token"] == broken["token"]


def test_after_the_host_went_down_the_run_goes_to_its_end_under_the_same_name(broken, resumed):
    assert resumed["run_id"] == broken["folder"].name and resumed["status"] == "sealed"
    assert resumed["stop_reason"] in ("time limit reached", "report delivered")
    assert resumed["steps"] > broken["step"]
    assert broken["new token"] != broken["token"]
    assert GatewayConfig.load(broken["folder"]).downtime_seconds > 0


def test_the_record_is_one_run_with_the_restart_in_it(broken, resumed):
    rows = [json.loads(line) for line in (broken["folder"] / "events.jsonl").read_text().splitlines()]
    words = [row["event_type"] for row in rows]
    assert words.count("RUN_STARTED") == 1 and words.count("RUN_SEALED") == 1 and "RESUMED" in words
    assert sorted(row["id"] for row in rows) == list(range(1, len(rows) + 1))


def test_a_run_that_is_over_is_not_resumed(lab, broken, resumed):
    done = lab.lab("run", "--resume", "last", code=3)
    assert "is sealed" in done.err and "`lab collect`" in done.err
    lab.lab("collect")
    assert "was collected" in lab.lab("run", "--resume", "last", code=3).err
