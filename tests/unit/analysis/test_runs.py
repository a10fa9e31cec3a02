"""TESTS: finding the run that was meant, and saying what each run was."""

import json
import os

import pytest
import synthetic_run
from typer.testing import CliRunner

from labkit import cli, runs
from labkit.errors import LabError

FIRST, SECOND, THIRD = "20261128-090000-aaaaaa", "20261129-201202-b0dd88", "20261129-231500-cccccc"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("home") / "runs"
    for run_id in (FIRST, SECOND, THIRD):
        synthetic_run.build(root, run_id, steps=12)
    (root / ".20261130-000000-dddddd.partial").mkdir()
    (root / "notes of mine").mkdir()
    return root


def test_the_list_says_what_each_run_was_oldest_first(root):
    listed = runs.list_runs(root)
    assert [info.run_id for info in listed] == [FIRST, SECOND, THIRD, "20261130-000000-dddddd"]
    first = listed[0]
    assert (first.minutes, first.steps, first.stop_reason) == (120.4, 12, "time limit reached")
    assert first.cost_usd > 0 and first.complete
    assert (listed[-1].complete, listed[-1].stop_reason) == (False, "collect not finished")


def test_runs_whose_names_differ_at_their_end_only_are_told_apart_at_80_columns(tmp_path, monkeypatch):
    names = [f"{FIRST}.incomplete-{number}" for number in (1, 2, 10)]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text("{}")
    monkeypatch.setenv("LAB_RUNS", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    shown = CliRunner().invoke(cli.app, ["runs"], catch_exceptions=False).stdout
    assert all(name in shown for name in names)
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    ("which", "run_id"), [("last", THIRD), (FIRST, FIRST), ("20261128", FIRST), ("20261129-20", SECOND)]
)
def test_a_run_is_found_by_last_by_id_and_by_its_beginning(root, which, run_id):
    assert runs.find(which, root) == root / run_id


def test_a_run_is_found_by_its_path(root):
    assert runs.find(f"{root}/{FIRST}") == root / FIRST


@pytest.mark.parametrize(
    ("which", "says", "names"),
    [
        ("20261129", "several runs begin with '20261129'", [SECOND, THIRD]),
        ("2025", "no collected run begins with '2025'", [FIRST, SECOND, THIRD]),
        ("", "no collected run begins with ''", [THIRD]),
        ("../x", "'../x' is no collected run: it is no folder with a run.db", [THIRD]),
    ],
)
def test_a_name_that_does_not_fit_one_run_gets_the_names_that_exist(root, which, says, names):
    with pytest.raises(LabError) as caught:
        runs.find(which, root)
    assert caught.value.message == says
    assert all(name in caught.value.hint for name in names)


def test_without_runs_the_error_says_how_to_get_one(tmp_path):
    assert runs.list_runs(tmp_path / "runs") == []
    with pytest.raises(LabError, match="no collected run in") as caught:
        runs.find("last", tmp_path / "runs")
    assert "lab collect" in caught.value.hint


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "[" * 100_000,
        '{"steps": NaN, "cost_usd": 1e999}',
        '{"steps": "x", "stop_reason": 7}',
        '{"stop_reason": "\\u001b[2J[/red]"}',
    ],
)
def test_a_summary_with_nonsense_in_it_still_gives_a_line(tmp_path, content):
    folder, _ = synthetic_run.build(tmp_path, steps=4)
    (folder / "summary.json").write_text(content)
    (info,) = runs.list_runs(tmp_path)
    assert (info.steps, info.cost_usd, info.stop_reason) == (None, None, "no summary")


def test_a_whole_run_is_preferred_as_the_last(tmp_path):
    whole, _ = synthetic_run.build(tmp_path, FIRST, steps=4)
    broken, _ = synthetic_run.build(tmp_path, SECOND, steps=4)
    (broken / "manifest.json").write_text(json.dumps({"extraction": {"complete": False}}))
    assert runs.find("last", tmp_path) == whole


def test_the_runs_folder_is_here_one_up_or_as_told(tmp_path, monkeypatch):
    monkeypatch.delenv("LAB_RUNS", raising=False)
    (tmp_path / "runs").mkdir()
    (tmp_path / "notebooks").mkdir()
    for here in (tmp_path, tmp_path / "notebooks"):
        monkeypatch.chdir(here)
        assert runs.default_root() == tmp_path / "runs"
    monkeypatch.setenv("LAB_RUNS", "/elsewhere")
    assert str(runs.default_root()) == "/elsewhere"


@pytest.mark.parametrize("name", ["manifest.json", "summary.json", "SHA256SUMS", "run.db"])
def test_a_pipe_in_one_run_is_said_of_that_run_and_the_others_are_listed(tmp_path, name):
    for run_id in (FIRST, SECOND):
        synthetic_run.build(tmp_path, run_id, steps=3)
    (tmp_path / FIRST / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / FIRST / name)
    bad, good = runs.list_runs(tmp_path)
    assert bad.damaged and bad.stop_reason == f"damaged: {name}: it is no regular file" and not bad.complete
    assert good.complete and not good.damaged and runs.find("last", tmp_path) == tmp_path / SECOND


def test_a_name_with_a_newline_stays_one_row(tmp_path, monkeypatch):
    (tmp_path / f"{FIRST}\n{SECOND}").mkdir()
    (tmp_path / f"{FIRST}\n{SECOND}" / "manifest.json").write_text("{}")
    monkeypatch.setenv("LAB_RUNS", str(tmp_path))
    shown = CliRunner().invoke(cli.app, ["runs"], catch_exceptions=False).stdout
    assert f"{FIRST}\\n{SECOND}" in shown


def test_a_folder_that_is_there_is_taken_without_a_slash_where_no_run_is_named_so(tmp_path, monkeypatch):
    synthetic_run.build(tmp_path / "elsewhere", "try1", steps=3)
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert runs.find("try1", tmp_path).samefile(tmp_path / "elsewhere/try1")
    monkeypatch.chdir(tmp_path / "elsewhere/try1")
    assert runs.find(".", tmp_path).samefile(tmp_path / "elsewhere/try1")


def test_a_collected_run_goes_before_a_folder_of_its_name(root, tmp_path, monkeypatch):
    synthetic_run.build(tmp_path, FIRST, steps=3)
    monkeypatch.chdir(tmp_path)
    assert runs.find(FIRST, root) == root / FIRST
