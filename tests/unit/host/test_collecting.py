"""TESTS: `lab collect` asks the guest, or reads its disks; libvirt's test driver stands for the host's."""

from __future__ import annotations

import json
import os
import subprocess
import time

import guest_disks
import pytest
import synthetic_run
import yaml
from driver_guest import UUID

from labkit import collecting, config, state
from labkit.errors import UNREACHABLE, LabError
from labkit.gateway import commands, pidfile

RUN_ID = synthetic_run.RUN_ID
SEALED_ROW = '{"id": 2, "event_type": "RUN_SEALED", "sanitized_output": "{}"}\n'
pytestmark = pytest.mark.skipif(
    bool(guest_disks.missing()), reason=f"not installed: {', '.join(guest_disks.missing())}"
)


@pytest.fixture
def mute(make_lab):
    """A lab whose guest's address is this machine's, where nothing listens on it."""
    return make_lab(
        {
            "lab_network_cidr": "127.0.0.0/8",
            "lab_host_address": "127.0.0.1",
            "lab_guest_address": "127.99.99.9",
        }
    )


@pytest.fixture
def folder(mute, tmp_path, monkeypatch):
    """The gateway's folder of a run in that guest, which lies on two real disks."""
    monkeypatch.setenv("LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(collecting, "SSH_SECONDS", 1)
    made = mute.gateway_dir / RUN_ID
    made.mkdir(parents=True)
    (made / "events.jsonl").write_text('{"id": 1, "event_type": "RUN_STARTED"}\n')
    state.update(mute.dir, run=RUN_ID, collected=False, made={"domain": UUID})
    mute.keys_dir.mkdir()
    (mute.keys_dir / "known_hosts").write_text("")
    guest_disks.build(mute.disks_dir, guest_disks.trees(tmp_path / "trees"))
    return made


def manifest(target):
    return json.loads((target / "manifest.json").read_text())


@pytest.fixture
def alive(folder):
    """A process that passes for the gateway of the run, which has just heard of the guest."""
    child = subprocess.Popen(["sleep", "600"])
    text = f"{child.pid}\n{pidfile.start_time(child.pid)}\n"
    (folder / pidfile.FILE_NAME).write_text(text)
    yield child
    child.kill()
    child.wait()


def test_a_guest_that_is_off_is_read_from_its_disks_and_it_is_said(mute, folder, running):
    running.stop("unit")
    heard = []
    target = collecting.collect(mute, folder, say=heard.append)
    assert (target / "workspace/notes/find.md").is_file()
    assert heard[0] == "the guest is off: its disks are read"
    assert any("not sealed" in line for line in heard)


def test_a_guest_that_does_not_answer_is_switched_off_and_read(mute, folder, running):
    heard = []
    target = collecting.collect(mute, folder, say=heard.append)
    assert running.state("unit") == "off"
    assert "does not answer over SSH" in heard[0] and "waited 1 s" in heard[0]
    assert "does not answer" in manifest(target)["reason"] and state.read(mute.dir)["collected"] is True


def test_a_paused_guest_is_read_without_waiting_for_an_answer(mute, folder, running):
    running.domain("unit").suspend()
    target = collecting.collect(mute, folder)
    assert manifest(target)["reason"] == "the guest is paused" and running.state("unit") == "off"


def test_a_mute_guest_whose_session_still_sends_events_is_left_alone_until_told(mute, folder, running, alive):
    with pytest.raises(LabError, match=r"sent an event \d+ s ago and may still run") as caught:
        collecting.collect(mute, folder)
    assert caught.value.code == UNREACHABLE and "--stop" in caught.value.hint
    assert running.state("unit") == "running" and alive.poll() is None
    assert collecting.collect(mute, folder, stop=True).is_dir() and running.state("unit") == "off"


def test_a_guest_that_dies_while_it_is_asked_is_read(mute, folder, running, alive, monkeypatch):
    def dies(*_):
        running.stop("unit")
        return "it breaks off"

    monkeypatch.setattr(collecting, "_why_it_cannot_be_asked", dies)
    assert (collecting.collect(mute, folder) / "workspace/notes/find.md").is_file()


def test_a_session_is_asked_to_stop_in_the_name_of_who_collects(mute, folder, running, alive):
    heard = []
    collecting.ask_to_stop(mute, folder, heard.append)
    assert "has not heard that it is to stop" in heard[0]
    (asked,) = commands.listed(folder)
    assert (asked["name"], asked["why"], asked["who"]["by"]) == ("stop", "lab collect --stop", "cli")


@pytest.mark.parametrize("last", ["quiet for long", "sealed"])
def test_a_mute_guest_whose_session_is_over_or_silent_is_read(mute, folder, running, alive, last):
    events = folder / "events.jsonl"
    if last == "sealed":
        events.write_text(SEALED_ROW)
    else:
        os.utime(events, (time.time() - 2 * 3600,) * 2)
    assert collecting.collect(mute, folder).is_dir()
    assert alive.wait(60) != 0  # the gateway is ended before its folder is copied


def test_asked_for_offline_the_guest_is_not_asked_first(mute, folder, running):
    target = collecting.collect(mute, folder, force_offline=True)
    assert "--offline" in manifest(target)["reason"] and running.state("unit") == "off"


def test_a_second_collect_says_that_there_is_nothing_to_do(mute, folder, running):
    running.stop("unit")
    target = collecting.collect(mute, folder)
    before = (target / "manifest.json").read_bytes()
    state.update(mute.dir, collected=False)
    heard = []
    assert collecting.collect(mute, folder, say=heard.append) == target
    assert heard == ["it was collected before: nothing to do"]
    assert (target / "manifest.json").read_bytes() == before and state.read(mute.dir)["collected"] is True


def test_a_foreign_guest_of_that_name_is_never_switched_off(mute, folder, running):
    state.update(mute.dir, made={"domain": UUID.replace("1", "2")})
    with pytest.raises(LabError, match="is not this lab's"):
        collecting.collect(mute, folder)
    assert running.state("unit") == "running"


def test_the_tasks_whose_failure_does_not_lead_to_the_disks_exist():
    tasks = [
        task["name"]
        for path in (config.REPO / "roles/collect/tasks").glob("*.yml")
        for task in yaml.safe_load(path.read_text())
    ]
    assert set(collecting.NOT_THE_GUESTS) <= set(tasks)


@pytest.mark.parametrize(
    ("events", "word"), [("", "never began"), ('{"id": 1, "event_type": "RUN_STARTED"}\n', "stands still")]
)
def test_a_run_that_could_go_on_is_not_collected_before_that_is_said(mute, folder, events, word):
    for name in ("run.json", "gateway.json"):
        (folder / name).write_text("{}")
    (folder / "events.jsonl").write_text(events)
    with pytest.raises(LabError, match=f"{RUN_ID} is not over: its session {word}") as caught:
        collecting.demand_over(folder, "open")
    assert f"`lab run --resume {RUN_ID}`" in caught.value.hint and "`lab collect --stop`" in caught.value.hint


def test_a_run_that_is_over_or_can_never_go_on_is_collected_without_a_word(mute, folder):
    collecting.demand_over(folder, "open")  # run.json and gateway.json are gone: nothing could resume it
    for name in ("run.json", "gateway.json"):
        (folder / name).write_text("{}")
    for stands in ("sealed", ""):
        collecting.demand_over(folder, stands)
    (folder / "events.jsonl").write_text(SEALED_ROW)
    collecting.demand_over(folder, "open")


def test_a_session_that_runs_is_not_collected_and_what_is_named_can_be_typed(mute, folder):
    with pytest.raises(LabError, match="still running") as caught:
        collecting.demand_over(folder, "active")
    assert "`lab finish`" in caught.value.hint
    (folder / "events.jsonl").write_text(SEALED_ROW)
    with pytest.raises(LabError, match=f"run {RUN_ID} is sealed, but its harness has not ended") as caught:
        collecting.demand_over(folder, "active")
    assert "`lab collect --stop`" in caught.value.hint and "finish" not in caught.value.hint


@pytest.mark.parametrize(
    ("events", "answers", "word"),
    [
        ("", ["active"], "active"),
        ("sealed", ["active", "active", "sealed"], "sealed"),
        ("", ["a word of the shell's own start\nopen"], "open"),
        ("", [""], ""),
    ],
)
def test_a_harness_that_has_just_sealed_its_run_is_let_end(folder, events, answers, word):
    """Who waits for the seal and then collects, as `lab demo` does, finds it in its last second."""
    (folder / "events.jsonl").write_text(SEALED_ROW if events else "")
    left = iter(answers)
    assert collecting.stands_at(folder, lambda: next(left)) == word
    assert next(left, None) is None


@pytest.mark.parametrize("stands", ["active", "sealed", "open", ""])
def test_the_guest_is_asked_where_its_session_stands(tmp_path, stands):
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(f"#!/bin/sh\n[ {stands or 'none'} = active ]\n")
    systemctl.chmod(0o755)
    telemetry = tmp_path / "telemetry"
    if stands:
        (telemetry / "sealed").mkdir(parents=True)
    if stands == "sealed":
        (telemetry / "sealed/run.db").touch()
    command = ["sh", "-c", collecting.STANDS.format(telemetry=telemetry)]
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    said = subprocess.run(command, capture_output=True, text=True, timeout=30, env=os.environ | path)
    assert said.stdout.strip() == stands


def room(telemetry, mirror):
    command = ["sh", "-c", collecting.ROOM.format(telemetry=telemetry, mirror=mirror)]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


def test_the_look_for_room_in_the_guest_leaves_nothing_and_names_the_place_without_any(tmp_path):
    telemetry = tmp_path / "telemetry"
    telemetry.mkdir()
    (telemetry / "run.db").write_bytes(b"x" * 5000)
    assert room(telemetry, tmp_path / "mirror").returncode == 0
    assert [path.name for path in telemetry.iterdir()] == ["run.db"]
    full = room(tmp_path / "closed", tmp_path / "mirror")
    assert full.returncode == 1 and full.stdout.split()[-1] == str(tmp_path / "closed")
