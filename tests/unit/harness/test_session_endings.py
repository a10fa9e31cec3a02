"""UNIT: how whole native sessions end: time, money, disk, a person, circling, no report."""

import json

import pytest
from diligent import diligent, short
from harness_run import run_session, run_settings
from scripted_gateway import ScriptedGateway, call, fault, say

pytestmark = pytest.mark.slow


def test_a_worker_that_never_reports_is_asked_once_with_tools_off(tmp_path):
    with ScriptedGateway(worker=lambda _: call("list_workspace")) as gateway:
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
    with ScriptedGateway(worker=diligent(call("list_workspace"))) as gateway:
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


@pytest.fixture(scope="module")
def circling(tmp_path_factory):
    """A session whose Worker types one command again and again: the run, what its model was asked."""
    with ScriptedGateway(worker=diligent(call("execute_shell", command="ls never"))) as gateway:
        run = short(tmp_path_factory.mktemp("circling"), gateway, minutes=0.05)
        assert gateway.refused == []
        yield run, gateway.asked("worker")


def test_repetition_is_named_to_the_worker(circling):
    run, asked = circling
    assert any("ls never" in reason for reason in run.events("GUARD", "guard_reason"))
    assert "[Repetition]" in json.dumps([body["messages"] for body in asked])


def test_who_circles_on_is_refused_and_then_has_to_do_something_else(circling):
    run, asked = circling
    offered = [[tool["function"]["name"] for tool in body["tools"]] for body in asked]
    said = " ".join(run.events("GUARD", "guard_reason"))
    rungs = [said.index(f"repetition: {rung}") for rung in ("nudge", "refuse", "change")]
    assert rungs == sorted(rungs)
    assert any("refused for a while" in text for text in run.events("TOOL_RESULT"))
    assert any("execute_shell" not in names and "write_scratchpad" in names for names in offered)
    assert run.summary["final_report_by"] == "worker"
