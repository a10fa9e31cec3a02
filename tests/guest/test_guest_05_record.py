"""HOST: `lab collect` and what it brings: complete, provable, and ready to be asked."""

import csv
import io
import json
import sqlite3
import subprocess
from pathlib import Path

import guest_lab
import nbformat
import pytest
from nbclient import NotebookClient

from labkit.analysis import questions
from labkit.disks import sha256
from labkit.verification.verify import UNKNOWN_BOOT

NOTEBOOKS = guest_lab.REPO / "notebooks"
REFERENCE_SQL = guest_lab.REPO / "tests" / "golden" / "reference_queries.sql"
COLUMNS = "id, step_number, timestamp, elapsed_seconds, phase, event_type, tool_name, command_or_input, \
sanitized_output, guard_status, guard_reason, prompt_tokens, completion_tokens, cached_tokens, cost_usd"


def rows(database: Path, sql: str) -> list[tuple]:
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


@pytest.fixture(scope="module")
def manifest(collected):
    return json.loads((collected / "manifest.json").read_text())


def test_every_file_has_the_sum_that_the_run_came_with(collected):
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=collected, capture_output=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    listed = {line.split("  ", 1)[1] for line in (collected / "SHA256SUMS").read_text().splitlines()}
    there = {str(path.relative_to(collected)) for path in collected.rglob("*") if path.is_file()}
    assert there - listed == {"SHA256SUMS"}


def test_the_run_is_whole(collected, manifest):
    assert manifest["extraction"]["complete"] is True
    assert manifest["databases"]["run.db"]["integrity"] == "ok"
    assert manifest["databases"]["mirror.db"]["integrity"] == "ok"
    assert rows(collected / "run.db", "PRAGMA integrity_check") == [("ok",)]
    for part in ("workspace/notes", "workspace/scripts", "backup/notes", "outputs", "gateway"):
        assert any((collected / part).iterdir()), part
    assert (collected / "console.log").stat().st_size > 0


def test_the_notes_quote_what_the_guest_really_said(collected):
    notes = {path.name: path.read_text() for path in (collected / "workspace/notes").glob("*.md")}
    first, unheard = notes["sha256_first_look.md"], "not run in this session"
    assert "Linux" in first and unheard not in first
    # Later ones quote these two, which a slow guest may not get to: only then may a quote be missing.
    if {"python_loop_cost.md", "durable_write_ratio.md"} <= notes.keys():
        assert not [name for name, text in notes.items() if unheard in text]


def test_record_ledger_and_bill_agree_for_a_third_party(lab, collected):
    found = lab.lab("verify", collected.name, "--json").json
    assert found["holds"] is True, found
    assert UNKNOWN_BOOT not in found["notes"]


def test_host_and_guest_name_the_same_boot(collected):
    with (collected / "gateway" / "ledger.jsonl").open(encoding="utf-8") as ledger:
        opened = json.loads(ledger.readline())
    began = "SELECT sanitized_output FROM execution_logs WHERE event_type = 'RUN_STARTED'"
    assert opened["kind"] == "opened"
    assert opened["body"]["boot_id"] == json.loads(rows(collected / "run.db", began)[0][0])["boot_id"]


def test_the_report_is_in_the_workspace_and_in_the_last_backup(collected, sealed):
    report = collected / "workspace" / sealed["final_report"]
    assert report.read_text().strip()
    assert (collected / "backup" / sealed["final_report"]).read_bytes() == report.read_bytes()


def test_run_db_is_the_very_file_that_was_sealed(collected, sealed):
    summary = json.loads((collected / "summary.json").read_text())
    assert summary["sha256"]["run.db"] == sha256(collected / "run.db")
    assert summary["events"] == sealed["events"]


@pytest.mark.parametrize("table", ["execution_logs", "file_registry", "api_requests", "prompts"])
def test_the_mirror_has_the_same_rows_under_the_same_ids(collected, table):
    ours, mirrored = (
        rows(collected / name, f"SELECT * FROM {table} ORDER BY 1") for name in ("run.db", "mirror.db")
    )
    assert ours and ours == mirrored


def test_the_hosts_own_copy_of_the_events_is_what_run_db_says(collected):
    names = COLUMNS.split(", ")
    heard = [json.loads(line) for line in (collected / "gateway" / "events.jsonl").read_text().splitlines()]
    written = rows(collected / "run.db", f"SELECT {COLUMNS} FROM execution_logs ORDER BY id")
    assert [tuple(row[name] for name in names) for row in heard] == written
    assert [row["id"] for row in heard] == list(range(1, len(heard) + 1))


def test_the_manifest_tells_what_the_run_was_made_from(collected, manifest, built):
    assert manifest["settings"]["model"] == "rehearsal" and "token" not in manifest["settings"]
    assert manifest["snapshot"]["fingerprint"] == built["snapshot"]["fingerprint"]
    assert manifest["receipt"]["holds"] is True
    assert {"libvirt", "qemu"} <= set(manifest["host"]) and manifest["guest"]["os"].startswith("Debian")
    assert manifest["packages"]["openai"] and manifest["kit"]["version"]
    prompts = dict(rows(collected / "run.db", "SELECT name, sha256 FROM prompts"))
    assert {"worker", "inspector", "digest"} <= set(prompts)
    assert {name: prompt["sha256"] for name, prompt in manifest["prompts"].items()} == prompts


def test_neither_token_nor_key_came_along(collected, started):
    for path in collected.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert started.token.encode() not in content, path
            assert guest_lab.CANARY.encode() not in content, path


def test_the_reference_runs_own_sql_works_on_run_db(collected, sealed):
    statements = [part for part in REFERENCE_SQL.read_text().split(";") if part.strip()]
    answers = [rows(collected / "run.db", sql) for sql in statements]
    assert len(answers) == 7 and all(answers)
    assert sum(row[2] for row in answers[0]) == sealed["events"]


@pytest.mark.parametrize("name", questions.SEVEN)
def test_each_of_the_seven_questions_has_an_answer(lab, collected, name):
    answer = lab.lab("query", name, "--run", collected.name, "--json").json
    assert answer and all(isinstance(row, dict) for row in answer)


def test_own_sql_answers_as_json_as_csv_and_as_a_table_and_cannot_write(lab, collected, sealed):
    sql = "SELECT COUNT(*) AS events FROM execution_logs"
    assert lab.lab("query", sql, "--json").json == [{"events": sealed["events"]}]
    table = list(csv.reader(io.StringIO(lab.lab("query", sql, "--csv").out)))
    assert table == [["events"], [str(sealed["events"])]]
    assert str(sealed["events"]) in lab.lab("query", sql).out
    refused = lab.lab("query", "DELETE FROM execution_logs", code=2)
    assert refused.out == "" and "Traceback" not in refused.err


def test_the_run_is_listed(lab, collected):
    listed = {run["run_id"]: run for run in lab.lab("runs", "--json").json}
    assert listed[collected.name]["complete"] is True


def test_the_notebook_draws_seven_plots_of_the_run(collected, monkeypatch):
    monkeypatch.setenv("LAB_RUNS", str(collected.parent))
    monkeypatch.setenv("LAB_RUN", collected.name)
    notebook = nbformat.read(NOTEBOOKS / "run.ipynb", as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(NOTEBOOKS)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 7


def test_a_second_collect_says_where_the_run_is_and_leaves_it_alone(lab, collected):
    before = {path: path.stat().st_mtime_ns for path in collected.rglob("*")}
    done = lab.lab("collect", code=None)
    assert str(collected) in done.out + done.err and "Traceback" not in done.err
    assert {path: path.stat().st_mtime_ns for path in collected.rglob("*")} == before
