"""TESTS: `lab verify` as a person types it."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from labkit.cli import app
from labkit.errors import EVIDENCE, USAGE, LabError


@pytest.fixture
def lab(copy, monkeypatch):
    monkeypatch.setenv("LAB_RUNS", str(copy.folder.parent))
    return lambda *words: CliRunner().invoke(app, ["verify", *words])


def test_a_run_that_holds_ends_with_0_and_says_what_was_compared(lab):
    said = lab("last")
    assert said.exit_code == 0 and "holds" in said.output and "tool calls" in said.output


def test_a_run_that_does_not_hold_ends_with_6_and_names_the_first_bad_record(lab, copy):
    copy.sql("DELETE FROM execution_logs WHERE id = 7")
    copy.seal()
    said = lab(copy.folder.name)
    assert said.exit_code == EVIDENCE == 6
    assert "the first bad record: missing: event 7 of run.db" in said.output


def test_with_json_the_kinds_are_data(lab, copy):
    copy.sql("UPDATE execution_logs SET phase = 'x' WHERE id = 7")
    copy.seal()
    said = lab("--json")
    data = json.loads(said.output)
    assert said.exit_code == EVIDENCE and data["holds"] is False
    assert data["first"] == {
        "kind": "altered",
        "where": "run.db",
        "record": "event 7",
        "what": data["first"]["what"],
    }


def test_a_kept_simulation_has_nothing_to_be_verified_against(tmp_path):
    kept = tmp_path / "kept"
    CliRunner().invoke(app, ["simulate", "--hours", "0.05", "--keep", str(kept)], catch_exceptions=False)
    with pytest.raises(LabError, match="is a simulation: it has no ledger of a host") as said:
        CliRunner().invoke(app, ["verify", str(kept)], catch_exceptions=False)
    assert said.value.code == USAGE


def test_a_collected_run_that_was_named_as_a_simulation_is_verified_all_the_same(lab, copy):
    copy.sql("UPDATE session_state SET value = 'simulated-honest-0' WHERE key = 'run_id'")
    assert lab("last").exit_code == EVIDENCE


def test_a_path_to_something_else_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_RUNS", str(tmp_path))
    with pytest.raises(LabError, match=f"{tmp_path}/other'? is no collected run"):
        CliRunner().invoke(app, ["verify", f"{tmp_path}/other"], catch_exceptions=False)
