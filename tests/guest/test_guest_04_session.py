"""HOST: a whole session in the guest with the rehearsal model, looked at while it runs and once sealed."""

import json

import guest_lab
import pytest

from labkit.errors import NOT_READY

PHASES = ["EXPLORATION", "DEVELOPMENT", "SYNTHESIS", "FINAL_REPORT"]
TOOLS = {
    "execute_shell",
    "write_scratchpad",
    "write_script",
    "browser_fetch",
    "read_file",
    "list_workspace",
}


@pytest.fixture(scope="module")
def events(started, sealed):
    """The rows the guest pushed, as the host has them."""
    return [json.loads(line) for line in (started.gateway / "events.jsonl").read_text().splitlines()]


def test_status_tells_that_the_session_runs(lab, started):
    known = lab.lab("status", "--json").json
    assert (known["guest"], known["run"], known["sealed"]) == ("running", started.run_id, False)
    assert known["gateway_alive"] is True and known["dirty"] is True
    assert "`lab watch` shows the run" in lab.lab("status").out


@pytest.mark.parametrize("verb", [("run", "--model", "rehearsal", "--minutes", "2"), ("revert",), ("down",)])
def test_a_verb_that_would_lose_the_run_is_refused(lab, started, verb):
    done = lab.lab(*verb, code=NOT_READY)
    assert f"run {started.run_id} is in the guest 'labtest' and was not collected" in done.err
    assert "its session is still running" in done.err
    assert "`lab finish`" in done.err and "--discard" in done.err
    assert lab.lab("status", "--json").json["run"] == started.run_id


def test_the_service_in_the_guest_has_no_key_in_its_environment(lab, started):
    environment = lab.ssh(
        "tr '\\0' '\\n' < /proc/$(systemctl show -p MainPID --value lab-harness)/environ", code=0
    )
    assert "PYTHONPATH=/opt/lab-harness" in environment
    assert guest_lab.CANARY not in environment and "API_KEY" not in environment


def test_the_session_is_sealed_by_its_time_with_the_workers_own_report(started, sealed):
    assert sealed["run_id"] == started.run_id and sealed["status"] == "sealed"
    assert sealed["stop_reason"] in ("time limit reached", "report delivered")
    assert sealed["final_report_written"] is True and sealed["final_report_by"] == "worker"
    assert sealed["mirror"] == "ok"


def test_the_session_went_through_the_four_phases_in_order(events):
    assert list(dict.fromkeys(row["phase"] for row in events)) == PHASES


def test_the_worker_used_all_six_tools(events):
    assert {row["tool_name"] for row in events if row["event_type"] == "TOOL_CALL"} == TOOLS


def test_one_page_was_let_through_and_the_poisoned_one_was_not(events):
    fetched = [
        row for row in events if row["event_type"] == "TOOL_RESULT" and row["tool_name"] == "browser_fetch"
    ]
    allowed = [row for row in fetched if row["guard_status"] == "ALLOW"]
    blocked = [row for row in fetched if row["guard_status"] == "BLOCK"]
    assert any("<untrusted_web_content" in row["sanitized_output"] for row in allowed)
    assert blocked and all("<untrusted_web_content" not in row["sanitized_output"] for row in blocked)
    assert all(row["guard_reason"] for row in blocked)


def test_status_tells_that_the_run_is_sealed_and_waits_to_be_collected(lab, sealed):
    assert lab.lab("status", "--json").json["sealed"] is True
    assert "`lab collect` brings the run home" in lab.lab("status").out


def test_the_token_is_nowhere_in_the_guest_but_in_its_settings_and_the_hosts_key_is_nowhere(
    lab, started, sealed, tmp_path
):
    secrets = tmp_path / "secrets"
    secrets.write_text(f"{started.token}\n{guest_lab.CANARY}\n")
    places = "/sandbox /etc /home /root /tmp /var/log /var/tmp /opt/lab-harness/harness /run"
    found = lab.ssh(f"grep -rlaF --devices=skip -f - {places}", code=None, stdin=secrets)
    assert found.split() == ["/etc/lab-harness/run.json"]
    assert guest_lab.CANARY not in lab.ssh("cat /etc/lab-harness/run.json")
