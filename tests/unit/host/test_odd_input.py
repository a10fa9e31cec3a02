"""TESTS: odd things typed or on the disk, for verbs that need no guest: one sentence, one exit code."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys

import pytest
import synthetic_run

from labkit import config, lock, plan, restore, runs, state, texts
from labkit.config import REPO
from labkit.errors import NOT_READY, USAGE, LabError
from labkit.verbs.shared import demand_text

RUN_ID = "20261129-201202-b0dd88"


@pytest.fixture
def kit(tmp_path, inventory):
    """Runs `lab ...` in a folder with one run, in an environment of its own; returns the finished process."""
    folder, _ = synthetic_run.build(tmp_path / "runs", steps=2)

    def run(*arguments: str | bytes, **variables: str) -> subprocess.CompletedProcess:
        ours = {"LAB_INVENTORY": str(inventory()), "LAB_RUNS": str(folder.parent), "PYTHONPATH": str(REPO)}
        return subprocess.run(
            [sys.executable, "-m", "labkit", *arguments], capture_output=True, check=False, timeout=60,
            env={**os.environ, **ours, **variables}, cwd=tmp_path, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    return run


def refused(done: subprocess.CompletedProcess, code: int = USAGE) -> str:
    said = done.stderr.decode()
    assert done.returncode == code, said
    what, cure = said.splitlines()
    assert what.startswith("lab: ") and cure.startswith("     ") and done.stdout == b""
    return said


LATIN = {"PYTHONIOENCODING": "latin-1"}


def test_a_character_that_the_terminal_lacks_is_written_out(kit):
    done = kit("query", "SELECT '→ 🦆' AS duck", **LATIN)
    assert done.returncode == 0 and rb"\u2192 \U0001f986" in done.stdout
    assert json.loads(kit("query", "SELECT '→ 🦆' AS duck", "--json", **LATIN).stdout) == [{"duck": "→ 🦆"}]
    assert r"\u2192" in refused(kit("verify", "→", **LATIN))


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&-"])
@pytest.mark.parametrize(("words", "code"), [("query list", 0), ("runs", 0), ("query nope", 2)])
def test_a_stream_that_is_closed_changes_no_exit_code(tmp_path, closed, words, code):
    synthetic_run.build(tmp_path / "runs", steps=2)
    ours = {"LAB_RUNS": str(tmp_path / "runs"), "PYTHONPATH": str(REPO)}
    line = f"{shlex.quote(sys.executable)} -m labkit {words} {closed}"
    done = subprocess.run(
        ["sh", "-c", line], capture_output=True, check=False, timeout=60, env={**os.environ, **ours}
    )
    assert done.returncode == code and b"Traceback" not in done.stderr


def test_a_folder_that_was_removed_under_ones_feet_is_said(tmp_path):
    ours = {**os.environ, "PYTHONPATH": str(REPO)}
    ours.pop("LAB_RUNS", None)
    line = f"rmdir {shlex.quote(str(tmp_path))}; {shlex.quote(sys.executable)} -m labkit runs"
    done = subprocess.run(
        ["sh", "-c", line], capture_output=True, check=False, timeout=60, env=ours, cwd=tmp_path
    )
    assert "the folder you are in is gone" in refused(done, NOT_READY)


@pytest.mark.parametrize(
    ("question", "said"),
    [("", "the query is empty"), (" ;", "the query is empty"), (b"\xff", "it is not text in UTF-8")],
)
def test_what_is_no_question_is_refused_in_words(kit, question, said):
    assert said in refused(kit("query", question))


@pytest.mark.parametrize("path", ["/etc", "./nowhere", "../runs", "runs/" + RUN_ID + "/run.db"])
def test_a_path_that_is_no_run_is_named(kit, path):
    said = refused(kit("query", "event_types", "--run", path))
    assert f"'{path}' is no collected run" in said and f"there is: {RUN_ID[:4]}" in said


def test_what_was_typed_comes_back_short_and_on_one_line(tmp_path):
    synthetic_run.build(tmp_path / "runs", steps=2)
    with pytest.raises(LabError) as caught:
        runs.find("a\nb" + "x" * 5000, tmp_path / "runs")
    assert r"'a\nbxxx" in caught.value.message and len(caught.value.message) < 200


@pytest.mark.parametrize("place", ["file/below", "file/below/more"])
def test_a_place_that_cannot_be_is_said_before_a_simulation(kit, tmp_path, place):
    (tmp_path / "file").touch()
    assert f"no folder {place} can be made" in refused(kit("simulate", "--hours", "0.02", "--keep", place))


def test_a_text_without_end_is_not_read_to_its_end(lab):
    with pytest.raises(LabError, match="more than 1,000,000 characters") as caught:
        plan.make(lab, task_file=config.Path("/dev/zero"))
    assert caught.value.code == USAGE
    with pytest.raises(LabError, match="not text in UTF-8"):
        texts.read("task", config.Path(sys.executable))


def test_what_no_record_could_hold_is_not_said_to_a_session(kit):
    assert "is not text in UTF-8" in refused(kit("say", b"\xff"))
    assert "is not text in UTF-8" in refused(kit("finish", "--why", b"\xff"))
    demand_text("→ 🦆")


def test_a_program_that_is_not_there_is_said_at_the_start_and_not_at_the_end(make_lab):
    with pytest.raises(LabError, match="there is no program no-such-program") as caught:
        plan.make(make_lab(run={"run_on_complete_command": ["no-such-program", "x"]}))
    assert caught.value.code == USAGE
    plan.make(make_lab(run={"run_on_complete_command": ["sh", "-c", "true"]}))
    with pytest.raises(LabError, match="relative path"):
        make_lab(run={"run_on_complete_command": ["./notify"]})


def test_a_variable_that_stands_twice_is_named_with_its_line(inventory):
    folder = inventory()
    (folder / config.RUN_FILE).write_text("run_minutes: 5\nrun_budget_usd: 2\nrun_minutes: 6\n")
    with pytest.raises(LabError, match="line 3: run_minutes stands twice"):
        config.load(folder)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no host in the group hypervisors"),
        ("all: {children: {hypervisors: {hosts: {h: }}}}", "has no host in the group guests"),
        ("all: 7", "has no host in the group"),
        ("a: [", "line 1: "),
    ],
)
def test_an_inventory_without_its_hosts_is_refused_before_ansible_misses_them(inventory, text, said):
    folder = inventory()
    (folder / config.HOSTS_FILE).write_text(text)
    with pytest.raises(LabError) as caught:
        config.load(folder)
    assert said in caught.value.message and caught.value.code == USAGE


def test_groups_may_stand_at_the_top_too(inventory):
    folder = inventory()
    (folder / config.HOSTS_FILE).write_text("hypervisors: {hosts: {h: }}\nguests: {hosts: {g: }}\n")
    assert config.load(folder).name == "unit"


@pytest.mark.parametrize("text", ['{"run": 7}', '{"run": "../../etc"}', '{"run": ""}', '{"made": []}'])
def test_a_state_that_the_kit_did_not_write_is_damaged(lab, text):
    lab.dir.mkdir(parents=True)
    (lab.dir / "state.json").write_text(text)
    with pytest.raises(LabError, match="is damaged") as caught:
        state.read(lab.dir)
    assert "lab down --discard" in caught.value.hint


def test_a_state_folder_that_is_a_file_is_said_with_its_variable(lab):
    lab.state_dir.touch()
    with (
        pytest.raises(LabError, match="nothing can be written in") as caught,
        lock.hold(lab.state_dir, "unit", "up"),
    ):
        pass
    assert caught.value.code == NOT_READY and "lab_state_dir" in caught.value.hint
    with pytest.raises(LabError, match="Not a directory") as caught:
        state.read(lab.dir)
    assert "lab_state_dir" in caught.value.hint


def test_a_run_behind_a_link_is_restored_from_and_a_link_in_it_is_not(tmp_path):
    folder, _ = synthetic_run.build(tmp_path / "runs", steps=2)
    shutil.rmtree(folder / "backup", ignore_errors=True)
    (folder / "backup/notes").mkdir(parents=True)
    (folder / "backup/notes/a.md").write_text("found\n")
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    restore.from_run(tmp_path / "link" / folder.name, "notes/a.md", tmp_path / "a.md")
    assert (tmp_path / "a.md").read_text() == "found\n"
    (folder / "backup/out").symlink_to("/etc")
    with pytest.raises(LabError, match="leads through a link"):
        restore.from_run(folder, "out/passwd", tmp_path / "b")
    with pytest.raises(LabError, match="nothing can be written in") as caught:
        restore.from_run(folder, "notes/a.md", tmp_path / "a.md" / "b")
    assert "--to" in caught.value.hint
