"""UNIT: one whole session: `python -m harness` against a scripted gateway, looked at from all sides."""

import json
import re

import pytest
from diligent import STEP_SECONDS, diligent, phase_of
from harness_run import run_session, run_settings
from scripted_gateway import TOKEN, ScriptedGateway, broken, call, say

from harness.phases import PHASES


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
    plan = diligent(*work)

    def worker(body):
        reply = plan(body)
        return reply(body) if callable(reply) else reply

    with ScriptedGateway(worker=worker) as gateway:
        run = run_session(
            run_settings(tmp_path_factory.mktemp("whole") / "sandbox", gateway.url, minutes=0.08),
            step_seconds=STEP_SECONDS,
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
