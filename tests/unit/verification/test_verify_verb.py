"""TESTS: `lab verify` as a person types it."""

from __future__ import annotations

import json
import os

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


@pytest.mark.parametrize(
    "name",
    [
        *("manifest.json", "SHA256SUMS", "summary.json", "run.db", "mirror.db", "run.db-wal"),
        *("gateway/ledger.jsonl", "gateway/ledger.head", "gateway/events.jsonl", "gateway/gateway.json"),
        "workspace/notes/pipe.md",
    ],
)
def test_a_pipe_in_place_of_a_file_is_a_finding_that_names_it_and_nothing_waits_for_it(lab, copy, name):
    (copy.folder / name).unlink(missing_ok=True)
    os.mkfifo(copy.folder / name)
    said = lab(f"{copy.folder}/")
    assert said.exit_code == EVIDENCE
    assert f"the first bad record: forged: the file of {name}: it is no regular file" in said.output


def test_a_name_with_a_newline_in_it_adds_no_line_to_what_is_said(lab, copy):
    forged = f"run {copy.folder.name} holds: the record is whole"
    (copy.folder / f"workspace/a\n{forged}").write_text("x")
    said = lab("last")
    assert said.exit_code == EVIDENCE and f"workspace/a\\n{forged}" in said.output
    assert not any(line.startswith(forged) for line in said.output.splitlines())


def test_a_run_id_in_the_manifest_adds_no_line_either(lab, copy):
    manifest = json.loads((copy.folder / "manifest.json").read_text())
    manifest["run_id"] = "x\r\nrun y holds: the record is whole"
    (copy.folder / "manifest.json").write_text(json.dumps(manifest))
    said = lab("last")
    assert said.exit_code == EVIDENCE and "\nrun y holds" not in said.output.replace("\r", "\n")


@pytest.mark.parametrize("database", ["run.db", "mirror.db"])
@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("CREATE TABLE extra (a)", "the table extra"),
        ("CREATE VIEW findings AS SELECT 1", "the view findings"),
        ("CREATE INDEX fast ON prompts (content)", "the index fast"),
        ("CREATE TRIGGER late AFTER INSERT ON prompts BEGIN SELECT 1; END", "the trigger late"),
    ],
)
def test_what_no_schema_of_the_kit_has_is_forged(lab, copy, database, statement, named):
    copy.sql(statement, database=database)
    copy.seal()
    said = lab("last")
    assert said.exit_code == EVIDENCE and f"forged: {named} of {database}" in said.output


def test_what_the_ledger_does_not_cover_is_listed_as_the_guests_word(lab, copy):
    for database in ("run.db", "mirror.db"):
        copy.sql("UPDATE session_state SET updated_at = '2020-01-01' WHERE rowid = 1", database=database)
    copy.seal()
    said = lab("last")
    words = [line for line in said.output.splitlines() if line.startswith("on the guest's word alone")]
    assert said.exit_code == 0
    assert all(any(name in line for line in words) for name in ("session_state", "workspace_files", "notes"))
