"""UNIT: a run that is killed goes on as if nothing had happened, in whatever phase and however often."""

import re
import sqlite3
import threading
import time

import pytest
from harness_run import Run, run_session, run_settings, start
from killed_runs import assert_whole, kill, phase_of, wait_until
from scripted_gateway import TOKEN, ScriptedGateway, call, say

from harness.context import Step
from harness.repetition import Repetition
from harness.session import Session, from_rows, load
from harness.telemetry.recorder import Recorder
from harness.tools.base import Outcome

pytestmark = pytest.mark.slow


def test_a_run_killed_in_its_final_phase_keeps_digest_window_money_and_tools(tmp_path):
    finals, held, gone = [], threading.Event(), threading.Event()

    def worker(body):
        if len(gateway.asked("worker")) == 10:  # by then the window was cut and there is a digest
            gateway.commands.append({"id": 1, "name": "finish", "args": {}})
        if phase_of(body) != "FINAL_REPORT":
            time.sleep(0.05)
            return call("execute_shell", command="true")
        finals.append(body)
        window = sum(message["role"] == "assistant" for message in body["messages"])
        if len(finals) > 3 and window > 2 and not held.is_set():  # 2: cut just now, the checkpoint has more
            held.set()
            gone.wait(60)
        report = call("write_scratchpad", filename="final_report_v1.md", content="# done")
        return report if len(finals) > 8 else call("list_workspace")

    with ScriptedGateway(worker=worker) as gateway:
        settings = run_settings(tmp_path / "sandbox", gateway.url, minutes=5)
        process = start(settings)
        wait_until(held.is_set)
        kill(process)
        gone.set()
        before = Run(tmp_path / "sandbox").rows("SELECT key, value FROM session_state", "telemetry/run.db")
        seen = len(gateway.asked("worker"))
        run = run_session(settings)
        first = gateway.asked("worker")[seen]
    state = dict(before)
    assert_whole(run)
    assert phase_of(first) == "FINAL_REPORT"
    assert "write_script" not in [tool["function"]["name"] for tool in first["tools"]]
    assert state["digest"] and state["digest"] in first["messages"][1]["content"]
    shown = [message for step in from_rows(state).steps() for message in step.messages]
    assert first["messages"][2 : 2 + len(shown)] == shown
    spent = float(re.search(r"\$([\d.]+)", first["messages"][-1]["content"]).group(1))
    assert spent >= float(state["spent_usd"]) - 0.0001 > 0
    assert any("[Restart]" in str(message["content"]) for message in first["messages"][-3:-1])
    assert run.events("PHASE_STARTED", "phase").count("FINAL_REPORT") == 1
    assert run.summary["stop_reason"] == "finished by a person"


def test_a_kept_guests_old_report_does_not_end_a_run_resumed_in_its_final_phase(tmp_path):
    notes = tmp_path / "sandbox" / "workspace" / "notes"
    notes.mkdir(parents=True)
    (notes / "final_report_v1.md").write_text("of another run\n")
    with ScriptedGateway(worker=lambda _: time.sleep(0.05) or call("list_workspace")) as gateway:
        gateway.commands.append({"id": 1, "name": "finish", "args": {}})
        settings = run_settings(tmp_path / "sandbox", gateway.url, minutes=5)
        process = start(settings)
        wait_until(lambda: any("FINAL" in phase_of(body) for body in gateway.asked("worker")))
        kill(process)
        gateway.replies["worker"] = [
            say("hm"),
            call("write_scratchpad", filename="final_report_v2.md", content="# 2"),
        ]
        run = run_session(settings)
    assert run.summary["final_report"] == "notes/final_report_v2.md"
    assert run.summary["stop_reason"] == "finished by a person"


def test_a_checkpoint_that_cannot_be_read_is_sealed_with_a_report_instead_of_left(tmp_path):
    note = call("write_scratchpad", filename="a.md", content="x")
    with ScriptedGateway(worker=[note, say("on")]) as gateway:
        settings = run_settings(tmp_path / "sandbox", gateway.url, minutes=5)
        process = start(settings)
        wait_until(lambda: len(gateway.asked("worker")) > 3)
        kill(process)
        for copy in ("telemetry", "mirror"):
            db = sqlite3.connect(tmp_path / "sandbox" / copy / "run.db")
            db.execute("UPDATE session_state SET value = '{torn' WHERE key = 'window'")
            db.commit()
            db.close()
        run = run_session(settings)
        assert sorted(gateway.events) == list(range(1, run.summary["events"] + 1))
    assert run.summary["stop_reason"] == "interrupted"
    assert "SCRATCHPAD notes/a.md" in (run.notes / "final_report_v1.md").read_text()
    assert any("could not begin" in reason for reason in run.events("GUARD", "guard_reason"))


def test_a_run_db_that_is_damaged_is_rebuilt_from_the_mirror_and_the_run_goes_on(tmp_path):
    with ScriptedGateway(worker=lambda _: time.sleep(0.05) or call("list_workspace")) as gateway:
        settings = run_settings(tmp_path / "sandbox", gateway.url, minutes=5)
        process = start(settings)
        wait_until(lambda: len(gateway.asked("worker")) > 3)
        kill(process)
        gateway.commands.append({"id": 1, "name": "stop", "args": {}})
        telemetry = tmp_path / "sandbox" / "telemetry"
        for leftover in telemetry.glob("run.db-*"):
            leftover.unlink()
        (telemetry / "run.db").write_bytes(b"\0" * 100_000)
        run = run_session(settings)
    assert_whole(run)
    assert len(run.events("RUN_STARTED")) == len(run.events("RESUMED")) == 1
    assert any("run.db had lost" in said for said in run.events("MIRROR_HEALED"))
    assert (telemetry / "earlier/unreadable/run.db").stat().st_size == 100_000


def test_a_resumed_session_still_knows_what_was_refused_and_what_awaits_its_digest(tmp_path):
    recorder = Recorder(tmp_path / "run.db", tmp_path / "mirror.db", TOKEN, lambda: 1.0)
    repetition = Repetition(3, 6)
    for _ in range(5):
        repetition.saw([("execute_shell make", Outcome("Error 1"))])
        repetition.found()
    kept = Session("r1", repetition=repetition.dump())
    kept.keep([], [Step(7, [{"role": "user", "content": "left the window"}])])
    kept.save(recorder)
    again = load(recorder, "r1")
    assert Repetition(3, 6, **again.repetition).refuses("execute_shell make")
    assert [known.number for known in again.pending_steps()] == [7]
