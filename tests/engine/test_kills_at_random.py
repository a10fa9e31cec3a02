"""TESTS: runs killed again and again, and records of earlier runs in a kept guest: one whole run each."""

import json
import random
import sqlite3
import time
from functools import partial

from harness_run import run_session, run_settings, start
from killed_runs import assert_whole, is_busy, kill, phase_of, wait_until
from scripted_gateway import ScriptedGateway, call

KILLS = 10


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
    assert run.summary["elapsed_seconds"] < 0.04 * 60 * 5  # the last step, the report and the seal
    assert run.summary["final_report_written"]


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
