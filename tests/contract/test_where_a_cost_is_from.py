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


@pytest.fixture(scope="module")
def unbilled(tmp_path_factory):
    """A collected run whose provider told tokens and no cost."""
    lab = Lab(tmp_path_factory.mktemp("unbilled"), minutes=1.0)
    with pytest.MonkeyPatch.context() as patch, serving() as upstream:
        patch.setenv("LAB_TEST_KEY", "sk-test-key-of-this-test-0123")
        upstream.answers(answer(cost=None, prompt=1000, completion=50).json())
        paid = {"provider": "paid", "base_url": upstream.url, "key_env": "LAB_TEST_KEY"}
        lab.config = dataclasses.replace(lab.config, **paid)
        try:
            lab.run(step_seconds=6.0)
        finally:
            process.stop(lab.gateway)
        return lab.collect()


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
        "prompt_tokens = 900",
    ],
)
def test_an_estimate_that_its_tokens_do_not_give_is_found(unbilled, tmp_path, change):
    folder = tampered(unbilled, tmp_path, f"UPDATE api_requests SET {change} WHERE id = 3")
    found = [(one.kind, one.record) for one in examine(folder).findings]
    assert ("altered", "api_requests 3") in found


def test_the_record_of_an_earlier_kit_which_did_not_say_verifies_and_answers(unbilled, tmp_path):
    folder = tampered(unbilled, tmp_path, "ALTER TABLE api_requests DROP COLUMN cost_source")
    report = examine(folder)
    assert report.holds, text(report)
    assert {row[1] for row in load.query(folder, "cost_by_source").rows} == {"not recorded"}


def tampered(run, tmp_path, sql):
    """A copy in which both databases were changed and every sum fits."""
    folder = Path(shutil.copytree(run, tmp_path / run.name))
    for name in ("run.db", "mirror.db"):
        with closing(sqlite3.connect(folder / name)) as db, db:
            db.execute(sql)
    summary = json.loads((folder / "summary.json").read_text())
    summary["sha256"] = {"run.db": sums.file_sha256(folder / "run.db")}
    (folder / "summary.json").write_text(json.dumps(summary))
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    sums.write(folder, {name: sums.file_sha256(folder / name) for name in names if name != sums.NAME})
    return folder
