"""TESTS: a provider that states no cost: guest, ledger, verify and query tell bills from estimates."""

import dataclasses
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from gateway_in_process import answer
from gateway_process import serving
from native_lab import Lab

from labkit import sums
from labkit.analysis import load
from labkit.gateway import process
from labkit.verification.verify import examine, text

EARLIER = "ALTER TABLE api_requests DROP COLUMN cost_source"


def run_with(reply, home):
    """A collected run whose provider always answers that."""
    lab = Lab(home, minutes=1.0)
    with pytest.MonkeyPatch.context() as patch, serving() as upstream:
        patch.setenv("LAB_TEST_KEY", "sk-test-key-of-this-test-0123")
        upstream.answers(reply)
        paid = {"provider": "paid", "base_url": upstream.url, "key_env": "LAB_TEST_KEY"}
        lab.config = dataclasses.replace(lab.config, **paid)
        try:
            lab.run(step_seconds=6.0)
        finally:
            process.stop(lab.gateway)
        return lab.collect()


@pytest.fixture(scope="module")
def unbilled(tmp_path_factory):
    """Its provider told tokens and no cost."""
    return run_with(answer(cost=None, prompt=1000, completion=50).json(), tmp_path_factory.mktemp("unbilled"))


def test_an_honest_run_whose_provider_tells_nothing_of_what_it_used_verifies(tmp_path):
    reply = answer().json()
    del reply["usage"]
    folder = run_with(reply, tmp_path)
    assert {row[1] for row in load.query(folder, "cost_by_source").rows} == {"unknown"}
    report = examine(folder)
    assert report.holds, text(report)


def test_an_honest_run_whose_provider_states_no_cost_verifies(unbilled):
    report = examine(unbilled)
    assert report.holds, text(report)


def test_an_estimate_is_told_from_a_bill(unbilled):
    rows = load.query(unbilled, "cost_by_source").rows
    assert [row[:2] for row in rows] == [("report", "price table"), ("worker", "price table")]
    for _, _, attempts, cost in rows:
        assert cost == pytest.approx(attempts * (1000 * 0.10 + 50 * 0.20) / 1e6)


@pytest.mark.parametrize(
    "change",
    [
        "cost_usd = cost_usd / 2",
        "cost_usd = 0, cost_source = 'free'",
        "cost_source = 'billed'",
        "cost_source = 'free'",
        "cost_source = 'made up'",
        "cost_usd = NULL, cost_source = NULL",
        "prompt_tokens = 900",
    ],
)
def test_an_estimate_that_its_tokens_do_not_give_is_found(unbilled, tmp_path, change):
    folder = tampered(unbilled, tmp_path, f"UPDATE api_requests SET {change} WHERE id = 3")
    found = [(one.kind, one.record) for one in examine(folder).findings]
    assert ("altered", "api_requests 3") in found


def test_the_record_of_an_earlier_kit_which_did_not_say_verifies_and_answers(unbilled, tmp_path):
    folder = tampered(unbilled, tmp_path, EARLIER)
    report = examine(folder)
    assert report.holds, text(report)
    assert {row[1] for row in load.query(folder, "cost_by_source").rows} == {"not recorded"}


def test_a_run_of_an_earlier_kit_whose_mirror_alone_was_out_of_reach_when_it_went_on_verifies(
    unbilled, tmp_path
):
    earlier = tampered(unbilled, tmp_path, "UPDATE api_requests SET cost_source = NULL")
    report = examine(tampered(earlier, tmp_path / "again", EARLIER, "mirror.db"))
    assert report.holds, text(report)


def tampered(run, tmp_path, sql, *databases):
    """A copy in which both databases (or those named) were changed and every sum fits."""
    folder = Path(shutil.copytree(run, tmp_path / run.name))
    for name in databases or ("run.db", "mirror.db"):
        with closing(sqlite3.connect(folder / name)) as db, db:
            db.execute(sql)
    summary = json.loads((folder / "summary.json").read_text())
    summary["sha256"] = {"run.db": sums.file_sha256(folder / "run.db")}
    (folder / "summary.json").write_text(json.dumps(summary))
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    sums.write(folder, {name: sums.file_sha256(folder / name) for name in names if name != sums.NAME})
    return folder
