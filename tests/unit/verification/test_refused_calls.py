"""UNIT: calls that a real gateway refuses: each is a row, costs nothing, and the record holds."""

import contextlib
import dataclasses
import json
import sqlite3
import threading

import httpx2
import pytest
from gateway_in_process import GUEST, TOKEN, InProcess, ScriptedProvider, answer
from gateway_process import serving
from harness_run import run_settings
from loopback import gateway_config
from native_lab import Lab

from harness.clock import Clock
from harness.errors import EndRun, ModelError
from harness.model import Model
from harness.money import Purse
from harness.replies import MAYBE_DONE
from harness.settings import from_dict
from harness.telemetry.recorder import Recorder
from harness.world import REAL
from labkit.gateway import budget, process
from labkit.verification.verify import examine, text

MESSAGES = [{"role": "system", "content": "s"}, {"role": "user", "content": "Phase: EXPLORATION"}]
TOKENS = "prompt_tokens, completion_tokens, cached_tokens"
COLUMNS = f"purpose, attempt, status, detail, finish_reason, {TOKENS}, cost_usd"
LONG_AGO = "2026-01-01T00:00:00Z"


@pytest.fixture
def made(tmp_path):
    """made(reply, **changes of the gateway) -> the harness's Model, whose calls a real app answers."""

    def make(reply=lambda _: answer(cost=0.25), **changes):
        ours = {"models": ("scripted/worker",), "provider": "paid", "base_url": "http://x.invalid"}
        config = gateway_config(TOKEN, **ours | {"budget_usd": 5.0} | changes)
        gateway = InProcess(tmp_path / "gateway", config, ScriptedProvider(reply))
        wanted = from_dict(run_settings(tmp_path / "sandbox", token=TOKEN))
        recorder = Recorder(tmp_path / "run.db", tmp_path / "mirror.db", TOKEN, lambda: 0.0)
        clock = Clock(wanted.length_seconds, 0.1)
        clock.start()
        world = dataclasses.replace(REAL, transport=httpx2.ASGITransport(gateway.app, client=(GUEST, 1)))
        return Model(wanted, recorder, clock, Purse.of(wanted), threading.Event(), world)

    return make


def rows(model):
    return model.recorder.query(f"SELECT {COLUMNS} FROM api_requests ORDER BY id")


@pytest.mark.parametrize(
    ("changes", "reason", "status", "words"),
    [
        ({"budget_usd": 0.00001}, "budget exhausted", "budget_exhausted", "HTTP 402 budget_exhausted: "),
        ({"started_at": LONG_AGO}, "wall limit reached", "run_ended", "HTTP 403 run_ended: "),
    ],
)
def test_a_call_that_ends_the_run_leaves_its_row(made, changes, reason, status, words):
    model = made(**changes)
    with pytest.raises(EndRun) as end:
        model.ask("worker", MESSAGES)
    assert end.value.stop_reason == reason
    (row,) = rows(model)
    assert row[:3] == ("worker", 1, status) and row[3].startswith(words)
    assert row[4:] == (None, None, None, None, 0.0)
    assert model.recorder.query("SELECT latency_seconds >= 0 FROM api_requests") == [(1,)]
    said = model.recorder.query("SELECT sanitized_output FROM execution_logs WHERE event_type = 'API_ERROR'")
    assert len(said) == 1 and words in said[0][0]


@pytest.mark.parametrize(
    ("changes", "text", "words"),
    [
        ({"models": ("another/model",)}, "short", "HTTP 403 model_not_allowed: "),
        ({"max_completion_tokens": 100}, "short", "HTTP 400 bad_request: max_completion_tokens"),
        ({}, "x" * (21 << 20), "HTTP 413 bad_request: the body is larger"),
        ({"guest_address": "192.0.2.1"}, "short", "HTTP 403 wrong_source: "),
        ({"token_sha256": "0" * 64}, "short", "HTTP 401 bad_token: "),
    ],
    ids=["model", "limit", "size", "source", "token"],
)
def test_a_call_that_is_refused_is_tried_once_and_leaves_its_row(made, changes, text, words):
    model = made(**changes)
    with pytest.raises(ModelError, match="refused"):
        model.ask("worker", [*MESSAGES, {"role": "user", "content": text}])
    (row,) = rows(model)
    assert row[:3] == ("worker", 1, "refused") and row[3].startswith(words)
    assert row[4:] == (None, None, None, None, 0.0)
    assert (model.purse.spent, model.purse.unknown) == (0, 0)


@pytest.mark.parametrize("status", [500, 502, *MAYBE_DONE])
def test_what_a_failed_call_may_have_cost_is_the_same_on_both_sides(made, status, tmp_path):
    model = made(lambda _: httpx2.Response(status, json={"error": {"message": "busy"}}))
    with pytest.raises(ModelError):
        model.ask("worker", MESSAGES, patience=0.1)
    (row,) = rows(model)
    charged = json.loads((tmp_path / "gateway/requests.jsonl").read_text().splitlines()[0])["charged_usd"]
    assert (row[-1] is None) == (charged > 0) == (model.purse.unknown > 0) == (status in MAYBE_DONE)


def test_a_call_that_was_cut_behind_the_gateway_may_have_been_billed(made):
    def gone(_):
        raise httpx2.ReadError("gone")

    model = made(gone)
    with pytest.raises(ModelError):
        model.ask("worker", MESSAGES, patience=0.1)
    assert rows(model)[0][2:3] + rows(model)[0][-1:] == ("connection", None)
    assert model.purse.unknown > 0


def test_a_provider_that_the_gateway_could_not_reach_has_billed_nothing(made):
    def nobody(_):
        raise httpx2.ConnectError("nobody")

    model = made(nobody)
    with pytest.raises(ModelError):
        model.ask("worker", MESSAGES, patience=0.1)
    assert rows(model)[0][2:3] + rows(model)[0][-1:] == ("connection", 0.0)
    assert model.purse.unknown == 0


def test_both_sides_know_the_same_answers_behind_which_the_work_may_have_been_done():
    assert MAYBE_DONE == budget.MAYBE_DONE


def test_a_session_that_the_hosts_cap_ends_has_a_row_for_each_refusal_and_verifies(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_TEST_KEY", "sk-test-key-of-this-test-0123")
    lab = Lab(tmp_path, minutes=2.0)
    with serving() as upstream:
        upstream.answers(answer(cost=0.02).json())
        paid = {"provider": "paid", "base_url": upstream.url, "key_env": "LAB_TEST_KEY"}
        cap = {"day_budget_usd": 0.25, "days_dir": str(tmp_path / "days")}
        lab.config = dataclasses.replace(lab.config, **paid, **cap)
        try:
            lab.run()
        finally:
            process.stop(lab.gateway)
        folder = lab.collect()
    with contextlib.closing(sqlite3.connect(folder / "run.db")) as db:
        wanted = f"SELECT {COLUMNS} FROM api_requests WHERE status = 'budget_exhausted' ORDER BY id"
        refused = db.execute(wanted).fetchall()
        paid_for = "SELECT COUNT(*), SUM(cost_usd) FROM api_requests WHERE status = 'ok'"
        answered = db.execute(paid_for).fetchone()
    assert [row[0] for row in refused] == ["worker", "report", "report"]  # at last with the digest alone
    assert all("run_day_budget_usd" in row[3] and row[4:] == (None,) * 4 + (0.0,) for row in refused)
    report = examine(folder)
    assert report.holds, text(report)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["stop_reason"] == "budget exhausted" and summary["final_report_by"] == "harness"
    assert summary["api_requests"] == answered[0] + len(refused)
    assert (summary["cost_usd"], summary["unknown_cost_requests"]) == (pytest.approx(answered[1]), 0)


def test_a_refused_call_excuses_no_missing_one(copy):
    last = copy.ask("SELECT MAX(id) FROM api_requests WHERE status = 'ok'")[0][0]
    copy.sql(
        "UPDATE api_requests SET status = 'run_ended', cost_usd = 0, prompt_tokens = NULL, "
        f"completion_tokens = NULL, cached_tokens = NULL, reasoning_tokens = NULL WHERE id = {last}"
    )
    copy.seal()
    found = [(one.kind, one.record.split()[0]) for one in copy.examine().findings]
    assert ("missing", "exchange") in found
