"""UNIT: the ending: which report counts, who writes it, in what order a run is sealed, what it admits."""

import ast
import json
import os
import re
import sqlite3
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from scripted_gateway import broken
from test_context import step
from test_tools import make_desk

from harness import ballast, guards, tools
from harness.context import Context
from harness.ending import Ending
from harness.errors import STOP_REASONS, ModelError, NoMoney
from harness.final_report import FinalReport
from harness.money import Usage
from harness.replies import Reply

ROOT = Path(__file__).parents[3]


class Scripted:
    """A model whose report calls give the replies in turn; an exception is raised."""

    def __init__(self, *replies):
        self.replies, self.asked = list(replies), []

    def ask(self, purpose, messages, **_):
        self.asked.append(messages)
        said = self.replies.pop(0)
        if isinstance(said, Exception):
            raise said
        return Reply(said, (), "stop", Usage(), 0.0)


@pytest.fixture
def desk(tmp_path):
    desk = make_desk(tmp_path, backup_command=[])
    yield desk
    desk.jobs.stop()


def sealed(desk, *replies, reason="time limit reached"):
    context = Context("system", 18, 6)
    for number in range(5):
        context.add(step(number, 1))
    link = SimpleNamespace(flush=lambda *_: True, close=lambda: None)
    model = Scripted(*replies)
    summary = Ending(desk, model, context, link).seal(reason)
    return summary, model


def note(desk, name, text="x\n"):
    (desk.settings.paths.notes / name).write_text(text)


def test_a_report_is_seen_as_soon_as_it_says_something_however_long_nothing_had_changed(desk):
    report = FinalReport(desk, Scripted(), Context("system", 18, 6))
    notes = desk.settings.paths.notes
    note(desk, "other.md")
    time.sleep(0.2)  # what has not changed for long is not read again
    assert report.any_yet() == report.any_yet() == []
    note(desk, "final_report_v2.md", " \n")
    time.sleep(0.2)
    assert report.any_yet() == []
    note(desk, "final_report_v2.md")
    assert report.any_yet() == report.names() == ["final_report_v2.md"]
    (notes / "final_report_v2.md").rename(notes / "moved.md")
    assert report.any_yet() == []


def test_a_report_is_seen_although_the_folder_is_given_back_its_old_time(desk):
    report = FinalReport(desk, Scripted(), Context("system", 18, 6))
    notes = desk.settings.paths.notes
    os.utime(notes, (1e9, 1e9))
    time.sleep(0.2)  # longer than a time of change is in doubt
    assert report.any_yet() == []
    note(desk, "final_report_v1.md")
    os.utime(notes, (1e9, 1e9))  # as `rsync -a`, tar and `cp -p` leave a folder behind
    assert report.any_yet() == ["final_report_v1.md"]


def test_the_highest_version_counts_whoever_wrote_the_others(desk):
    for name in (
        "final_report_v2.md",
        "final_report_v10.md",
        "final_report_v9.md",
        "final_report_v11_draft.md",
    ):
        note(desk, name)
    note(desk, "final_report_v12.md", "")
    summary, model = sealed(desk)
    assert summary["final_report"] == "notes/final_report_v10.md"
    assert (summary["final_report_by"], model.asked) == ("worker", [])


def test_a_folder_or_a_link_of_that_name_is_no_report_and_hides_none(desk):
    notes = desk.settings.paths.notes
    note(desk, "final_report_v1.md")
    note(desk, "master.md")
    (notes / "final_report_v2.md").symlink_to("nowhere")
    (notes / "final_report_v3.md").symlink_to("master.md")
    (notes / "final_report_v4.md").mkdir()
    summary, model = sealed(desk)
    assert (summary["final_report"], model.asked) == ("notes/final_report_v1.md", [])


@pytest.mark.parametrize("make", [lambda path: path.write_text(" \n\t\n"), os.mkfifo], ids=["blank", "pipe"])
def test_what_says_nothing_is_no_report(desk, make):
    make(desk.settings.paths.notes / "final_report_v1.md")
    summary, _ = sealed(desk, "# The model's report")
    assert summary["final_report"] == "notes/final_report_v2.md"


def test_where_only_a_dangling_link_is_called_a_report_there_is_one_at_the_end(desk):
    (desk.settings.paths.notes / "final_report_v1.md").symlink_to("nowhere")
    summary, _ = sealed(desk, ModelError("server", "away"))
    assert (summary["final_report_written"], summary["final_report"]) == (True, "notes/final_report_v2.md")


def test_the_third_rung_replaces_nothing_that_lies_there(desk):
    note(desk, "final_report_v1.md", "")
    summary, _ = sealed(desk, ModelError("server", "away"))
    assert (summary["final_report"], summary["final_report_by"]) == ("notes/final_report_v2.md", "harness")
    assert (desk.settings.paths.notes / "final_report_v1.md").read_text() == ""


@pytest.mark.parametrize("reason", ["interrupted", "stopped by a person"])
def test_in_haste_the_workers_report_stands_and_no_model_is_asked(desk, reason):
    note(desk, "final_report_v3.md", "of the Worker")
    summary, model = sealed(desk, reason=reason)
    assert (summary["final_report"], summary["final_report_by"]) == ("notes/final_report_v3.md", "worker")
    assert model.asked == []
    assert len(list(desk.settings.paths.notes.iterdir())) == 1


def test_the_second_rung_is_tools_off_with_all_the_worker_knows(desk):
    summary, model = sealed(desk, "# Report")
    assert summary["final_report_by"] == "worker"
    assert len(model.asked) == 1
    assert len(model.asked[0]) > 10
    assert broken(model.asked[0]) == ""


def test_a_report_with_what_no_file_can_hold_is_written_without_it_and_recorded(desk):
    summary, _ = sealed(desk, "# Report \ud83d\x1b[31m\n\nDone.")
    assert (summary["final_report_by"], summary["final_report"]) == ("worker", "notes/final_report_v1.md")
    assert (desk.settings.paths.notes / "final_report_v1.md").read_text() == "# Report \n\nDone."
    said = desk.recorder.query("SELECT sanitized_output FROM execution_logs WHERE event_type = 'REPORT'")
    assert said == [("# Report \n\nDone.",)]


def test_where_there_is_no_money_for_all_it_knows_the_digest_must_do(desk):
    summary, model = sealed(desk, NoMoney("too dear"), "# A short report")
    assert [len(messages) for messages in model.asked] == [13, 3]
    assert (desk.settings.paths.notes / "final_report_v1.md").read_text() == "# A short report"
    assert summary["final_report_by"] == "worker"


def test_children_are_stopped_before_the_last_backup_and_the_record_is_closed_after_it(tmp_path):
    # What was killed takes a moment to be gone: the script gives it five seconds.
    state = "ps -o stat= $pid | grep -v Z"
    wait = f"for n in $(seq 50); do {state} > /dev/null || break; sleep 0.1; done"
    script = f"read -r pid < {tmp_path}/pid; {wait}; {state}; echo gen"
    desk = make_desk(tmp_path / "sandbox", backup_command=["/bin/sh", "-c", script])
    tools.use("execute_shell", {"command": f"sleep 60 & echo $! > {tmp_path}/pid"}, desk)
    sealed(desk, "# Report")
    words = [word for (word,) in desk.recorder.query("SELECT event_type FROM execution_logs ORDER BY id")]
    assert words[-3:] == ["REPORT", "BACKUP", "RUN_SEALED"]
    assert desk.recorder.query("SELECT sanitized_output FROM execution_logs WHERE event_type='BACKUP'") == [
        ("gen",)
    ]


def test_both_copies_are_checked_and_the_summary_says_so_everywhere(desk):
    summary, _ = sealed(desk, "# Report")
    assert summary["integrity"] == {"run.db": "ok", "mirror": "ok"}
    stored = json.loads(desk.recorder.state()["summary"])
    assert stored["integrity"] == summary["integrity"]
    assert json.loads(desk.settings.paths.summary.read_text()) == summary


@pytest.mark.parametrize(("copy", "other"), [("run.db", "mirror"), ("mirror", "run.db")])
def test_a_copy_that_fails_its_check_is_named_in_the_summary_and_sealed_all_the_same(desk, copy, other):
    damage(desk.recorder.db if copy == "run.db" else desk.recorder.mirror.db)
    summary, _ = sealed(desk, "# Report")
    assert summary["integrity"][copy] not in ("ok", "not open")
    assert summary["integrity"][other] == "ok"
    assert summary["status"] == "sealed"
    said = desk.recorder.query("SELECT guard_reason FROM execution_logs WHERE event_type = 'GUARD'")
    assert any(f"integrity check failed: {copy}" in reason for (reason,) in said)


def damage(db):
    """An index that lacks what its table holds: reading works, the check does not."""
    db.execute("CREATE TABLE odd (a, b)")
    db.execute("INSERT INTO odd VALUES (1, 5), (2, 6)")
    db.execute("CREATE INDEX odd_index ON odd (a)")
    db.execute("PRAGMA writable_schema = ON")
    db.execute("UPDATE sqlite_schema SET sql = 'CREATE INDEX odd_index ON odd (b)' WHERE name = 'odd_index'")
    db.execute("PRAGMA writable_schema = RESET")
    assert db.execute("PRAGMA integrity_check").fetchall() != [("ok",)]


def test_a_model_report_that_the_workspace_cannot_take_lies_beside_the_record_and_is_not_replaced(desk):
    desk.settings.paths.notes.rmdir()
    desk.settings.paths.notes.write_text("in the way")
    summary, _ = sealed(desk, "# Of the model")
    path = desk.settings.paths.telemetry / "final_report_v1.md"
    assert (summary["final_report"], summary["final_report_by"]) == (str(path), "worker")
    assert path.read_text() == "# Of the model"


def test_the_ballast_is_gone_once_the_run_is_sealed(desk):
    ballast.place(desk.settings.paths.tmp)
    sealed(desk, "# Report")
    assert not (desk.settings.paths.tmp / ballast.NAME).exists()


def test_a_reason_that_nobody_documented_becomes_interrupted_and_is_said(desk):
    summary, _ = sealed(desk, reason="because")
    assert summary["stop_reason"] == "interrupted"
    said = desk.recorder.query("SELECT guard_reason FROM execution_logs WHERE event_type = 'GUARD'")
    assert any("no reason to stop" in reason for (reason,) in said)


def test_the_documented_reasons_are_exactly_those_that_the_harness_can_give():
    page = (ROOT / "docs/interfaces.md").read_text()
    listed = re.search(r"`stop_reason` is one of: (.*?)\.\n", page, re.S)[1]
    assert {" ".join(words.split()) for words in re.findall(r"`([^`]+)`", listed)} == STOP_REASONS
    assert {guard.stop_reason for guard in guards.GUARDS} - {None} <= STOP_REASONS
    given = set()
    for module in (ROOT / "harness").rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "EndRun":
                given |= {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
    assert given and given <= STOP_REASONS


def test_a_disk_that_takes_no_word_more_still_ends_in_a_summary(desk, monkeypatch):
    def full(*_args, **_more):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(desk.recorder, "event", full)
    summary, _ = sealed(desk, "# Report")
    assert summary["final_report_written"]
    assert desk.settings.paths.summary.exists()
