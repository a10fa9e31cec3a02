"""UNIT: a run that is killed goes on as if nothing had happened, in whatever phase and however often."""

import json
import random
import re
import sqlite3
import time
from functools import partial

from harness_run import Run, run_session, run_settings, start
from scripted_gateway import TOKEN, ScriptedGateway, call, say

from harness.context import Step
from harness.phases import PHASES
from harness.repetition import Repetition
from harness.session import Session, load
from harness.telemetry.recorder import Recorder
from harness.tools.base import Outcome

KILLS = 10
TABLES = ("execution_logs", "file_registry", "api_requests", "session_state", "prompts", "workspace_files")


def phase_of(body):
    return re.search(r"^Phase: (\w+)$", body["messages"][-1]["content"], re.M).group(1)


def kill(process):
    process.kill()
    process.wait()
    process.stdout.close()


def is_busy(process, gateway, asked):
    return len(gateway.requests) > asked or process.poll() is not None


def wait_until(condition, seconds=30):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not come to that"
        time.sleep(0.01)


def assert_whole(run):
    """No hole, no repetition, no jump back in the record; both copies are equal."""
    rows = run.rows("SELECT id, elapsed_seconds, step_number, phase FROM execution_logs ORDER BY id")
    assert [row[0] for row in rows] == list(range(1, len(rows) + 1))
    assert [row[1] for row in rows] == sorted(row[1] for row in rows)
    assert [row[2] for row in rows] == sorted(row[2] for row in rows)
    order = [phase.name for phase in PHASES]
    assert [row[3] for row in rows] == sorted((row[3] for row in rows), key=order.index)
    calls, results = len(run.events("TOOL_CALL")), len(run.events("TOOL_RESULT"))
    assert calls == results
    for table in TABLES:
        sql = f"SELECT * FROM {table} ORDER BY 1"
        assert run.rows(sql) == run.rows(sql, "mirror/run.db")


def test_ten_kills_at_random_moments_leave_one_whole_run(tmp_path):
    moments = random.Random(20261129)
    count = [0]

    def worker(body):
        time.sleep(0.02)
        count[0] += 1
        if phase_of(body) == "FINAL_REPORT":
            return call("write_scratchpad", filename="final_report_v1.md", content=f"# {count[0]}")
        if count[0] % 3:
            return call("write_scratchpad", filename=f"n{count[0]}.md", content="x")
        return call("execute_shell", command=f"echo {count[0]}; sleep 0.05")

    with ScriptedGateway(worker=worker) as gateway:
        settings = run_settings(tmp_path / "sandbox", gateway.url, minutes=0.04, report_reserve_fraction=0.03)
        for _ in range(KILLS):
            asked = len(gateway.requests)
            process = start(settings)
            wait_until(partial(is_busy, process, gateway, asked))
            time.sleep(moments.uniform(0, 0.3))
            kill(process)
        run = run_session(settings)
        assert gateway.refused == []
        assert sorted(gateway.events) == list(range(1, run.summary["events"] + 1))
        asked = len(gateway.asked("worker"))
    assert_whole(run)
    assert len(run.events("RUN_STARTED")) == len(run.events("RUN_SEALED")) == 1
    phases = run.events("PHASE_STARTED", "phase")
    assert len(phases) == len(set(phases))
    billed = run.rows("SELECT SUM(cost_usd), COUNT(*) FROM api_requests")[0]
    assert run.summary["cost_usd"] == round(billed[0], 6)
    assert asked - KILLS <= billed[1]  # at most the call that was under way is missing a kill
    assert run.summary["elapsed_seconds"] < 0.04 * 60 * 2
    assert run.summary["final_report_written"]


def test_a_run_killed_in_its_final_phase_keeps_digest_window_money_and_tools(tmp_path):
    finals = []

    def worker(body):
        if len(gateway.asked("worker")) == 10:  # by then the window was cut and there is a digest
            gateway.commands.append({"id": 1, "name": "finish", "args": {}})
        if phase_of(body) != "FINAL_REPORT":
            time.sleep(0.05)
            return call("execute_shell", command="true")
        finals.append(body)
        time.sleep(0.05)
        report = call("write_scratchpad", filename="final_report_v1.md", content="# done")
        return report if len(finals) > 8 else call("list_workspace")

    with ScriptedGateway(worker=worker) as gateway:
        settings = run_settings(tmp_path / "sandbox", gateway.url, minutes=5)
        process = start(settings)
        wait_until(lambda: len(finals) > 3)
        kill(process)
        before = Run(tmp_path / "sandbox").rows("SELECT key, value FROM session_state", "telemetry/run.db")
        seen = len(gateway.asked("worker"))
        run = run_session(settings)
        first = gateway.asked("worker")[seen]
    state = dict(before)
    assert_whole(run)
    assert phase_of(first) == "FINAL_REPORT"
    assert "write_script" not in [tool["function"]["name"] for tool in first["tools"]]
    assert state["digest"] and state["digest"] in first["messages"][1]["content"]
    shown = [message for step in json.loads(state["window"]) for message in step["messages"]]
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
        settings = run_settings(tmp_path / "sandbox", gateway.url, minutes=0.1)
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
        settings = run_settings(tmp_path / "sandbox", gateway.url, minutes=0.03)
        process = start(settings)
        wait_until(lambda: len(gateway.asked("worker")) > 3)
        kill(process)
        telemetry = tmp_path / "sandbox" / "telemetry"
        for leftover in telemetry.glob("run.db-*"):
            leftover.unlink()
        (telemetry / "run.db").write_bytes(b"\0" * 100_000)
        run = run_session(settings)
    assert_whole(run)
    assert len(run.events("RUN_STARTED")) == len(run.events("RESUMED")) == 1
    assert any("run.db had lost" in said for said in run.events("MIRROR_HEALED"))
    assert (telemetry / "earlier/unreadable/run.db").stat().st_size == 100_000


def test_the_record_of_an_earlier_run_goes_aside_sealed_or_not_and_a_new_one_begins(tmp_path):
    sandbox = tmp_path / "sandbox"
    with ScriptedGateway(worker=lambda _: time.sleep(0.05) or call("list_workspace")) as gateway:
        first = run_settings(sandbox, gateway.url, minutes=0.01, run_id="20261129-000000-aaaaaa")
        run_session(first)
        second = first | {"run_id": "20261129-000001-bbbbbb", "minutes": 5}
        process, asked = start(second), len(gateway.requests)
        wait_until(lambda: len(gateway.requests) > asked + 2)
        kill(process)
        gateway.events.clear()  # a gateway of its own for each run
        run = run_session(first | {"run_id": "20261129-000002-cccccc"})
    assert run.summary["run_id"] == "20261129-000002-cccccc"
    assert run.rows("SELECT id FROM execution_logs WHERE event_type = 'RUN_STARTED'") == [(1,)]
    earlier = sandbox / "telemetry" / "earlier"
    sealed = json.loads((earlier / "20261129-000000-aaaaaa" / "summary.json").read_text())
    assert sealed["run_id"] == "20261129-000000-aaaaaa"
    for copy in ("telemetry", "mirror"):
        folder = sandbox / copy / "earlier"
        assert sorted(entry.name[-6:] for entry in folder.iterdir()) == ["aaaaaa", "bbbbbb"]
        for name in folder.iterdir():
            db = sqlite3.connect(name / "run.db")
            assert db.execute("SELECT value FROM session_state WHERE key='run_id'").fetchone() == (name.name,)
            db.close()


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
