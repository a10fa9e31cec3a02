"""UNIT: whole native sessions against odd models, gateways, mirrors and settings."""

import signal
import time

import pytest
from diligent import diligent, short
from harness_run import Run, run_session, run_settings, start
from loopback import until
from scripted_gateway import BLOCK, ScriptedGateway, call, fault, say

pytestmark = pytest.mark.slow


def test_what_the_inspector_blocks_never_reaches_the_worker(tmp_path):
    worker = diligent(call("execute_shell", command="touch ran; curl http://127.0.0.1:1/"))
    with ScriptedGateway(worker=worker, inspector=[BLOCK]) as gateway:
        run = short(tmp_path, gateway, minutes=0.02)
    assert not (run.sandbox / "workspace" / "ran").exists()
    assert run.summary["inspector_blocks"] == run.summary["inspector_reviews"] > 0
    assert set(run.events("INSPECTOR_DECISION", "guard_status")) == {"BLOCK"}


def test_odd_replies_of_the_model_never_break_the_loop(tmp_path):
    worker = diligent(
        {"text": "", "calls": [("execute_shell", "{not json")]},
        {"text": "deep", "calls": [("execute_shell", '{"command": ' + "[" * 100_000)]},
        {"text": "cut", "calls": [("execute_shell", {"command": "touch cut"})], "finish": "length"},
        {"text": None, "calls": [("launch_rocket", {})]},
        {"text": "many", "calls": [("list_workspace", {})] * 10},
        {"text": "odd \ud800 \x00 text", "calls": [("execute_shell", {"command": "echo \ud800"})]},
        fault("html"),
        say("fine again"),
        fault("empty"),
    )
    with ScriptedGateway(worker=worker) as gateway:
        run = short(tmp_path, gateway)
        assert gateway.refused == []
    assert run.summary["stop_reason"] == "report delivered"
    assert not (run.sandbox / "workspace" / "cut").exists()
    assert not any("Traceback" in reason for reason in run.events("GUARD", "guard_reason"))


def test_a_gateway_that_goes_away_loses_no_event_and_stops_nothing(tmp_path):
    plan = diligent(call("list_workspace"))

    def worker(body):
        count = len(gateway.asked("worker"))
        if count == 5:
            gateway.up = False
            timer = __import__("threading").Timer(1.0, setattr, (gateway, "up", True))
            timer.start()
        return plan(body)

    with ScriptedGateway(worker=worker) as gateway:
        run = short(tmp_path, gateway, minutes=0.06)
        assert sorted(gateway.events) == list(range(1, run.summary["events"] + 1))
    assert run.summary["stop_reason"] == "report delivered"


def test_a_gateway_that_is_never_there_still_leaves_a_sealed_run_with_a_report(tmp_path):
    run = run_session(run_settings(tmp_path / "sandbox", "http://127.0.0.1:9", minutes=0.01))
    assert run.summary["stop_reason"] in ("wall limit reached", "model unreachable")
    assert run.summary["final_report_by"] == "harness"


def test_a_dead_mirror_and_a_failing_backup_are_told_and_stop_nothing(tmp_path):
    (tmp_path / "sandbox").mkdir()
    (tmp_path / "sandbox" / "mirror").write_text("in the way")
    with ScriptedGateway(worker=diligent(call("list_workspace"))) as gateway:
        run = short(tmp_path, gateway, backup_command=["/bin/false"])
    assert run.summary["mirror"].startswith("degraded")
    assert len(run.events("MIRROR_DEGRADED")) == 1
    assert all(said.startswith("failed") for said in run.events("BACKUP"))
    assert run.summary["stop_reason"] == "report delivered"


def test_sigterm_seals_within_seconds_even_in_the_middle_of_a_command(tmp_path):
    with ScriptedGateway(worker=[call("execute_shell", command="touch begun; sleep 60")]) as gateway:
        process = start(run_settings(tmp_path / "sandbox", gateway.url, minutes=5))
        run = Run(tmp_path / "sandbox")
        until((run.sandbox / "workspace/begun").exists)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        talk, _ = process.communicate(timeout=50)
    assert process.returncode == 0, talk
    assert time.monotonic() - began < 30
    assert run.summary["stop_reason"] == "interrupted"
    assert run.summary["final_report_by"] == "harness"


def test_wrong_settings_are_told_in_a_sentence(tmp_path):
    process = start(run_settings(tmp_path / "sandbox", minuts=3))
    talk, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "minuts" in talk
    assert "Traceback" not in talk
