"""UNIT: whole sessions, natively: `python -m harness` against a scripted gateway, a few seconds each."""

import json
import re
import signal
import time

import pytest
from harness_run import Run, run_session, run_settings, start
from scripted_gateway import BLOCK, TOKEN, ScriptedGateway, broken, call, fault, say

from harness.phases import PHASES

REPORT = call("write_scratchpad", filename="final_report_v1.md", content="# Final\n\nAll done.")


def phase_of(body):
    return re.search(r"^Phase: (\w+)$", body["messages"][-1]["content"], re.M).group(1)


def diligent(*work, pause=0.05):
    """A Worker that does `work` in turn, and in the final phase writes its report and then says so."""
    count = [0, 0]

    def reply(body):
        time.sleep(pause)
        final = phase_of(body) == "FINAL_REPORT"
        count[final] += 1
        if final:
            return REPORT if count[1] == 1 else say("The report stands.")
        return work[(count[0] - 1) % len(work)]

    return reply


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """One complete session that most promises can be checked against."""
    count = [0]

    def note(_body):
        count[0] += 1
        return call("write_scratchpad", filename=f"note_{count[0]}.md", content=f"finding; {TOKEN}")

    work = [
        call("execute_shell", command="echo hello; cat /etc/hostname"),
        note,
        call("execute_shell", command=f"echo {TOKEN}"),
        call("execute_shell", command="curl --version"),
        call("write_script", filename="probe.py", content="print(1)"),
        call("list_workspace"),
        call("write_scratchpad", filename="master_v1.md", content="what I believe"),
        {
            "text": "two at once",
            "calls": [("list_workspace", {}), ("read_file", {"path": "notes/note_1.md"})],
        },
        say("just thinking"),
    ]
    plan = diligent(*work, pause=0.03)

    def worker(body):
        reply = plan(body)
        return reply(body) if callable(reply) else reply

    with ScriptedGateway(worker=worker) as gateway:
        run = run_session(
            run_settings(tmp_path_factory.mktemp("whole") / "sandbox", gateway.url, minutes=0.08)
        )
        run.gateway = gateway
        yield run


def test_a_session_passes_all_four_phases_and_delivers_its_report(whole):
    phases = [row[0] for row in whole.rows("SELECT DISTINCT phase FROM execution_logs ORDER BY id")]
    assert phases == [phase.name for phase in PHASES]
    assert len(whole.events("PHASE_STARTED")) == 4
    assert whole.summary["stop_reason"] == "report delivered"
    assert (whole.summary["final_report_written"], whole.summary["final_report_by"]) == (True, "worker")
    assert (whole.notes / "final_report_v1.md").read_text().startswith("# Final")


def test_the_record_begins_and_ends_as_promised_and_the_summary_counts_it(whole):
    words = [row[0] for row in whole.rows("SELECT event_type FROM execution_logs ORDER BY id")]
    assert (words[0], words[-1]) == ("RUN_STARTED", "RUN_SEALED")
    summary = whole.summary
    assert summary["events"] == len(words)
    assert summary["nudges"] == words.count("SYSTEM_NUDGE") >= 5
    assert summary["inspector_reviews"] == words.count("INSPECTOR_DECISION") > 0
    assert summary["digest_refreshes"] == words.count("DIGEST_REFRESH") > 0
    assert summary["masters"] == 1
    assert summary["cost_usd"] == pytest.approx(summary["api_requests"] * 0.0001)
    in_event = json.loads(whole.events("RUN_SEALED")[0])
    assert in_event | {"sha256": summary["sha256"]} == summary


def test_the_cost_of_every_request_stands_on_exactly_one_event(whole):
    events = whole.rows("SELECT SUM(cost_usd), SUM(prompt_tokens) FROM execution_logs")[0]
    requests = whole.rows("SELECT SUM(cost_usd), SUM(prompt_tokens) FROM api_requests")[0]
    assert events == pytest.approx(requests)


def test_every_call_has_its_result_and_results_carry_a_guard_status(whole):
    rows = whole.rows(
        "SELECT event_type, guard_status FROM execution_logs WHERE event_type LIKE 'TOOL_%' ORDER BY id"
    )
    assert [row[0] for row in rows] == ["TOOL_CALL", "TOOL_RESULT"] * (len(rows) // 2)
    assert {row[1] for row in rows if row[0] == "TOOL_RESULT"} == {"ALLOW", "BYPASS"}
    assert {row[1] for row in rows if row[0] == "TOOL_CALL"} == {None}


def test_the_mirror_holds_the_same_rows(whole):
    for table in ("execution_logs", "file_registry", "session_state", "api_requests", "prompts"):
        sql = f"SELECT * FROM {table} ORDER BY 1"
        assert whole.rows(sql) == whole.rows(sql, "mirror/run.db")


def test_the_gateway_got_every_event_and_never_a_broken_list(whole):
    assert sorted(whole.gateway.events) == list(range(1, whole.summary["events"] + 1))
    assert whole.gateway.refused == []
    assert all(broken(body["messages"]) == "" for body in whole.gateway.requests)


def test_the_prompts_are_stored_byte_for_byte_and_filled(whole):
    stored = dict(whole.rows("SELECT name, content FROM prompts"))
    assert {body["messages"][0]["content"] for body in whole.gateway.asked("worker")} == {stored["worker"]}
    assert {body["messages"][0]["content"] for body in whole.gateway.asked("inspector")} == {
        stored["inspector"]
    }
    assert {body["messages"][0]["content"] for body in whole.gateway.asked("digest")} == {stored["digest"]}
    assert "{{" not in "".join(stored.values())
    assert re.search(r"\d+ CPU cores, [\d.]+ GB of memory, \d+ GB of disk", stored["worker"])


def test_the_prompt_keeps_its_prefix_and_ends_in_the_status(whole):
    bodies = whole.gateway.asked("worker")
    kept = sum(
        later["messages"][: len(earlier["messages"]) - 1] == earlier["messages"][:-1]
        for earlier, later in zip(bodies, bodies[1:], strict=False)
    )
    assert kept / len(bodies) > 0.6
    assert all("Phase: " in body["messages"][-1]["content"] for body in bodies)
    assert not any(
        "Phase: " in str(message["content"]) for body in bodies for message in body["messages"][:-1]
    )


def test_the_token_is_neither_in_the_record_nor_sent_to_a_model(whole):
    for name in ("telemetry/sealed/run.db", "mirror/run.db"):
        assert TOKEN.encode() not in (whole.sandbox / name).read_bytes()
    assert TOKEN not in json.dumps(whole.gateway.requests[-40:-20])


def test_the_tools_of_a_phase_are_what_the_model_is_offered(whole):
    offered = {
        phase_of(body): tuple(tool["function"]["name"] for tool in body["tools"])
        for body in whole.gateway.asked("worker")
    }
    assert offered == {phase.name: phase.tools for phase in PHASES}


def test_a_started_again_harness_leaves_a_sealed_run_alone(whole):
    before = whole.summary
    run_session(json.loads((whole.sandbox / "run.json").read_text()))
    assert whole.summary == before


def short(tmp_path, gateway, **changes):
    return run_session(
        run_settings(
            tmp_path / "sandbox",
            gateway.url,
            **({"minutes": 0.05, "report_reserve_fraction": 0.03} | changes),
        )
    )


def test_a_worker_that_never_reports_is_asked_once_with_tools_off(tmp_path):
    with ScriptedGateway(worker=lambda _: time.sleep(0.1) or call("list_workspace")) as gateway:
        run = short(tmp_path, gateway, minutes=0.02)
        asked = gateway.asked("report")
    assert run.summary["stop_reason"] == "time limit reached"
    assert run.summary["final_report_by"] == "worker"
    assert (run.notes / "final_report_v1.md").read_text().startswith("# Report\n\nWritten with tools off")
    assert len(asked) == 1
    assert "tools" not in asked[0]


def test_a_model_that_gives_no_report_at_all_is_replaced_by_the_record(tmp_path):
    worker = [call("write_scratchpad", filename="a.md", content="x"), say("hm")]
    with ScriptedGateway(worker=worker, report=[fault("status", status=400)]) as gateway:
        run = short(tmp_path, gateway, minutes=0.03)
    text = (run.notes / "final_report_v1.md").read_text()
    assert run.summary["final_report_written"]
    assert run.summary["final_report_by"] == "harness"
    assert "SCRATCHPAD notes/a.md" in text
    assert "time limit reached" in text


def test_a_person_who_asks_to_finish_gets_the_final_phase_at_once(tmp_path):
    with ScriptedGateway(worker=diligent(call("list_workspace"))) as gateway:
        gateway.commands.append({"id": 1, "name": "finish", "args": {}})
        run = short(tmp_path, gateway, minutes=5)
    assert run.summary["stop_reason"] == "finished by a person"
    assert run.summary["elapsed_seconds"] < 30
    assert len(run.events("COMMAND", "command_or_input")) == 1
    assert (run.notes / "final_report_v1.md").exists()


def test_the_report_of_an_earlier_run_in_a_kept_guest_does_not_count_as_this_ones(tmp_path):
    notes = tmp_path / "sandbox" / "workspace" / "notes"
    notes.mkdir(parents=True)
    (notes / "final_report_v1.md").write_text("of another run\n")
    with ScriptedGateway(worker=lambda body: say("no report from me")) as gateway:
        run = run_session(run_settings(tmp_path / "sandbox", gateway.url, minutes=0.03))
    assert run.summary["final_report"] == "notes/final_report_v2.md"
    assert (notes / "final_report_v1.md").read_text() == "of another run\n"


def test_money_running_out_leads_to_the_report_and_never_over_the_cap(tmp_path):
    with ScriptedGateway(worker=diligent(call("list_workspace"), pause=0)) as gateway:
        gateway.cost = 0.002
        run = short(tmp_path, gateway, minutes=5, budget_usd=0.03)
    assert run.summary["stop_reason"] == "budget exhausted"
    assert 0 < run.summary["cost_usd"] <= 0.03
    assert any("money" in reason for reason in run.events("GUARD", "guard_reason"))
    assert run.summary["final_report_written"]


def test_a_full_disk_leads_to_the_report(tmp_path):
    with ScriptedGateway(worker=diligent(call("list_workspace"))) as gateway:
        run = short(tmp_path, gateway, minutes=5, disk_limit_percent=0)
    assert run.summary["stop_reason"] == "disk limit reached"
    assert {
        row[0] for row in run.rows("SELECT DISTINCT phase FROM execution_logs WHERE event_type = 'TOOL_CALL'")
    } == {"FINAL_REPORT"}


def test_repetition_is_named_to_the_worker(tmp_path):
    with ScriptedGateway(worker=diligent(call("execute_shell", command="ls never"))) as gateway:
        run = short(tmp_path, gateway, minutes=0.02)
        shown = json.dumps([body["messages"] for body in gateway.asked("worker")])
    assert any("ls never" in reason for reason in run.events("GUARD", "guard_reason"))
    assert "[Repetition]" in shown


def test_who_circles_on_is_refused_and_then_has_to_do_something_else(tmp_path):
    with ScriptedGateway(worker=diligent(call("execute_shell", command="ls never"))) as gateway:
        run = short(tmp_path, gateway, minutes=0.04)
        offered = [[tool["function"]["name"] for tool in body["tools"]] for body in gateway.asked("worker")]
        assert gateway.refused == []
    said = " ".join(run.events("GUARD", "guard_reason"))
    rungs = [said.index(f"repetition: {rung}") for rung in ("nudge", "refuse", "change")]
    assert rungs == sorted(rungs)
    assert any("refused for a while" in text for text in run.events("TOOL_RESULT"))
    assert any("execute_shell" not in names and "write_scratchpad" in names for names in offered)
    assert run.summary["final_report_by"] == "worker"


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
    run = run_session(run_settings(tmp_path / "sandbox", "http://127.0.0.1:9", minutes=0.01), seconds=60)
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
    with ScriptedGateway(worker=[call("execute_shell", command="echo begun; sleep 60")]) as gateway:
        process = start(run_settings(tmp_path / "sandbox", gateway.url, minutes=5))
        run = Run(tmp_path / "sandbox")
        while not gateway.asked("worker"):
            time.sleep(0.05)
        time.sleep(0.5)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        talk, _ = process.communicate(timeout=30)
    assert process.returncode == 0, talk
    assert time.monotonic() - began < 10
    assert run.summary["stop_reason"] == "interrupted"
    assert run.summary["final_report_by"] == "harness"


def test_wrong_settings_are_told_in_a_sentence(tmp_path):
    process = start(run_settings(tmp_path / "sandbox", minuts=3))
    talk, _ = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "minuts" in talk
    assert "Traceback" not in talk
