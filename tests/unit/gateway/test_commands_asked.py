"""TESTS: what a person asks of a session; longer ones are in tests/engine/test_commands_live.py."""

from __future__ import annotations

import json
import os
import time
from types import SimpleNamespace

import pytest
from live_session import ME
from loopback import until

from labkit.errors import LabError
from labkit.gateway import commands


@pytest.mark.skipif(os.name != "posix", reason="runs the harness")
def test_stop_ends_a_running_command_and_seals_at_once_with_who_and_why_in_the_record(live):
    session = live("touch started; sleep 50")
    until((session.run.sandbox / "workspace/started").exists)
    asked = time.monotonic()
    session.ask("stop", "the disk is needed")
    summary = session.end()
    assert time.monotonic() - asked < 40, "the command was not waited for"
    assert summary["stop_reason"] == "stopped by a person"
    assert (summary["final_report_written"], summary["final_report_by"]) == (True, "harness")
    (told,) = [json.loads(line) for line in session.run.events("COMMAND", "command_or_input")]
    assert told == {"id": 1, "name": "stop", "args": {}, "who": ME, "why": "the disk is needed"}
    assert session.states() == ["acknowledged"]


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
        ("extend", {"minutes": 10**400}),
        ("extend", {"budget_usd": float("inf")}),
        ("extend", {"budget_usd": True}),
        ("extend", {"minutes": 1e9}),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_queued(tmp_path, name, args):
    with pytest.raises(LabError):
        commands.append(tmp_path, name, args)
    assert commands.listed(tmp_path) == []


def test_words_of_a_terminal_with_another_encoding_hold_up_no_command(run_gateway):
    running = run_gateway()
    latin = "caf" + "\udce9"  # as Python reads an argument that is no UTF-8
    commands.append(running.folder, "say", {"text": latin}, who={"user": latin}, why=latin)
    with open(running.folder / "commands.jsonl", "ab") as file:  # as an earlier kit wrote it
        file.write(json.dumps({"id": 2, "name": "say", "args": {"text": "caf\udce9"}}).encode() + b"\n")
    commands.append(running.folder, "say", {"text": "a\x9b"})
    told = running.http.get("/v1/commands?after=0").json()["commands"]
    assert [one["id"] for one in told] == [1, 2, 3] and told[2]["args"]["text"] == "a?"
    assert (told[0]["args"]["text"], told[0]["who"]["user"], told[0]["why"]) == ("caf?",) * 3


def test_a_disk_that_takes_no_command_is_told_in_words(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(commands, "_write", full)
    with pytest.raises(LabError, match="stop could not be written .*No space left on device"):
        commands.append(tmp_path, "stop")


def test_a_lock_that_changes_hands_is_not_taken_for_a_dead_ones(tmp_path, monkeypatch):
    lock, now, holders = tmp_path / "commands.jsonl.lock", [0.0], list(range(10))
    lock.touch()

    def sleep(_seconds: float) -> None:
        now[0] += 0.9 * commands.LOCK_STALE_SECONDS  # each holder within its time
        if holders:
            os.utime(lock, ns=(holders[0], holders.pop(0)))
            assert lock.exists() and commands.listed(tmp_path) == []

    monkeypatch.setattr(commands, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    commands.append(tmp_path, "pause")
    assert holders == [], "each of them was waited for"
    assert len(commands.listed(tmp_path)) == 1, "the last holder is dead"


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
