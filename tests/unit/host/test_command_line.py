"""TESTS: the command line as a person meets it: help, exit codes, one sentence for each failure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import datetime

import pytest
import synthetic_run
from typer.testing import CliRunner

from labkit import cli, state
from labkit.config import REPO

VERBS = sorted(
    command.name or command.callback.__name__.replace("_", "-") for command in cli.app.registered_commands
)
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="the verb becomes root first")
RUN_ID = "20261129-201202-b0dd88"


@pytest.fixture
def lab_command(tmp_path, inventory):
    """Runs `lab ...` as a process of its own in an empty folder, with an inventory and runs of its own."""
    folder = tmp_path / "here"
    folder.mkdir()
    (tmp_path / "runs").mkdir()
    environment = {**os.environ, "LAB_INVENTORY": str(inventory()), "LAB_RUNS": str(tmp_path / "runs")}

    def run(*arguments: str, **options) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "labkit", *arguments]
        options = {"capture_output": True, "stdin": subprocess.DEVNULL, "cwd": folder} | options
        environment["PYTHONPATH"] = str(REPO)
        return subprocess.run(command, text=True, check=False, timeout=60, env=environment, **options)

    return run


def refusal(done: subprocess.CompletedProcess, code: int) -> str:
    """What was said, after asserting that it is two lines: what happened, what to type."""
    assert done.returncode == code, done.stderr
    what, cure = done.stderr.strip().splitlines()
    assert what.startswith("lab: ") and cure.startswith("     ") and "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr


def test_the_verbs_are_those_of_the_readme_and_each_explains_itself():
    assert {"doctor", "up", "run", "watch", "status", "collect", "query", "revert", "down", "demo"} <= set(
        VERBS
    )
    for verb in VERBS:
        shown = CliRunner().invoke(cli.app, [verb, "--help"])
        assert shown.exit_code == 0 and "Usage:" in shown.output, verb


@pytest.mark.parametrize("verb", sorted(set(VERBS) - {"ssh", "demo", "gateway"}))
def test_every_verb_that_answers_has_json(verb):
    assert "--json" in CliRunner().invoke(cli.app, [verb, "--help"], env={"COLUMNS": "200"}).output


@pytest.mark.parametrize("arguments", [["no-such-verb"], ["run", "--minutes", "soon"], ["query"], []])
def test_what_cannot_be_understood_is_exit_code_2(arguments):
    assert CliRunner().invoke(cli.app, arguments).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--minutes", "0"], "--minutes 0.0 is not between 1 and 2880"),
        (["run", "--budget", "nan"], "--budget nan"),
        (["run", "--task", "missing.md"], "can't read the task file missing.md"),
        (["up", "--inventory", "nowhere"], "hosts.yml is missing there"),
        (["query", "steps"], "there is no collected run"),
    ],
)
def test_what_was_asked_wrongly_is_one_sentence_and_exit_code_2(lab_command, arguments, said):
    assert said in refusal(lab_command(*arguments), code=2)


@AS_ROOT
def test_what_is_not_ready_is_one_sentence_and_exit_code_3(lab_command):
    assert "no run is in the guest 'unit'" in refusal(lab_command("finish"), code=3)


@AS_ROOT
def test_a_missing_gateway_folder_is_one_sentence(lab_command, tmp_path):
    state.update(tmp_path / "state" / "unit", run=RUN_ID)
    assert "missing or empty" in refusal(lab_command("finish"), code=3)


@pytest.fixture
def at_work(tmp_path):
    """Another process that holds the lab, as `lab demo` does."""
    program = "import sys, pathlib, time; from labkit import lock\n" + (
        "with lock.hold(pathlib.Path(sys.argv[1]), 'unit', 'demo'): print('held', flush=True); time.sleep(99)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "state")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPO)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


@AS_ROOT
def test_status_says_which_command_is_at_work_since_when(lab_command, at_work):
    said = lab_command("status").stdout
    assert f"`lab demo` (process {at_work.pid}, since " in said and "snapshot: none yet" in said
    assert said.splitlines()[-1].startswith("wait until it is over")
    known = json.loads(lab_command("status", "--json").stdout)["at_work"]
    assert (known["verb"], known["pid"]) == ("demo", at_work.pid)
    assert datetime.fromisoformat(known["since"])
    at_work.kill()
    at_work.wait()
    assert json.loads(lab_command("status", "--json").stdout)["at_work"] is None


@AS_ROOT
def test_up_check_says_who_is_at_work_and_predicts_nothing(lab_command, at_work):
    said = lab_command("up", "--check").stdout
    assert "`lab demo`" in said and str(at_work.pid) in said and "did not finish" not in said
    predicted = json.loads(lab_command("up", "--check", "--json").stdout)
    assert predicted["would"] == "wait" and predicted["at_work"]["pid"] == at_work.pid


def test_help_before_a_verb_is_help_after_it(lab_command):
    assert "Usage: lab run" in lab_command("help", "run").stdout
    assert "Usage: lab [OPTIONS]" in lab_command("help").stdout


@pytest.fixture
def nobody_reads():
    """Where a pipe is written to whose reader has left, as behind `| head`."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


@pytest.mark.parametrize(
    "arguments",
    [
        ["help", "run"],
        ["--help"],
        ["runs"],
        ["query", "list"],
        ["query", "list", "--csv"],
        ["query", "event_types"],
    ],
    ids=" ".join,
)
def test_a_reader_that_left_ends_a_verb_silently(lab_command, tmp_path, nobody_reads, arguments):
    synthetic_run.build(tmp_path / "runs", steps=2)
    done = lab_command(*arguments, stdout=nobody_reads, stderr=subprocess.PIPE, capture_output=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_left_hides_no_exit_code(lab_command, tmp_path, nobody_reads):
    synthetic_run.build(tmp_path / "runs", steps=2)
    there = {"stdout": nobody_reads, "capture_output": False}
    assert lab_command("verify", stderr=subprocess.PIPE, **there).returncode == 6
    assert lab_command("query", "no_such", stderr=nobody_reads, **there).returncode == 2


def test_two_forms_at_once_are_refused(lab_command):
    for forms in (["--csv", "--json"], ["--csv-safe", "--json"], ["--csv", "--csv-safe"]):
        assert "choose one of them" in refusal(lab_command("query", "list", *forms), code=2)


def test_a_runs_folder_that_is_named_and_not_there_is_said(lab_command, tmp_path):
    (tmp_path / "runs").rmdir()
    said = refusal(lab_command("runs"), code=2)
    assert f"LAB_RUNS names {tmp_path}/runs, and there is no such folder" in said
    assert "LAB_RUNS" in refusal(lab_command("query", "event_types"), code=2)


def test_runs_without_any_is_a_sentence_and_an_empty_list_as_json(lab_command):
    assert "no runs yet" in lab_command("runs").stdout
    assert json.loads(lab_command("runs", "--json").stdout) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_is_said_in_words(lab_command):
    with open("/dev/full", "w") as full:
        done = lab_command("runs", stdout=full, stderr=subprocess.PIPE, capture_output=False)
    assert done.returncode == 3 and "a disk of this host is full" in done.stderr and "df -h" in done.stderr


def child(program: str, *arguments: str, **options) -> subprocess.CompletedProcess:
    """The command line in a process in which `program` ran first."""
    code = f"import sys; sys.path.insert(0, {str(REPO)!r})\n{program}\nfrom labkit.cli import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    options = {"stdin": subprocess.DEVNULL, **options}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **options)


def test_ctrl_c_ends_with_130_and_says_where_to_look():
    done = child(
        "from labkit import runs\ndef list_runs():\n    raise KeyboardInterrupt\nruns.list_runs = list_runs",
        "runs",
    )
    assert done.returncode == 130 and "lab: interrupted" in done.stderr and "lab status" in done.stderr


# Ctrl-C comes when the modules of the command line are half loaded.
INTERRUPTED_LOADING = """
import os, signal, sys
class Finder:
    def find_spec(self, name, *_):
        if name == "duckdb":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
signal.signal(signal.SIGINT, signal.{handler})
from labkit.__main__ import main
main()
"""


def interrupted_while_loading(handler: str) -> subprocess.CompletedProcess:
    code = f"import sys; sys.path.insert(0, {str(REPO)!r})\n{INTERRUPTED_LOADING.format(handler=handler)}"
    command = [sys.executable, "-c", code, "query", "list"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_ctrl_c_while_the_command_line_is_loaded_shows_no_traceback():
    done = interrupted_while_loading("default_int_handler")
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_a_command_behind_an_ampersand_goes_on_not_hearing_ctrl_c():
    assert interrupted_while_loading("SIG_IGN").returncode == 0


def test_a_guests_words_in_an_error_cannot_steer_the_terminal():
    program = (
        "from labkit import runs, errors\n"
        "def list_runs():\n"
        "    raise errors.LabError('said \\x1b]0;owned\\x07 \\x9b2J', 'type this')\n"
        "runs.list_runs = list_runs"
    )
    done = child(program, "runs")
    assert done.returncode == 3 and "said " in done.stderr
    assert not set("\x1b\x07\x9b") & set(done.stderr)


NOT_ROOT = "import os; os.geteuid = lambda: 1000"


def test_without_root_and_without_sudo_the_sentence_says_so(tmp_path, inventory):
    environment = {"PATH": str(tmp_path), "LAB_INVENTORY": str(inventory())}
    said = refusal(child(NOT_ROOT, "status", env=environment), code=3)
    assert "needs root, and there is no sudo" in said and "as root" in said


@pytest.fixture
def sudo_is(tmp_path, inventory):
    """Puts a sudo of these shell lines on the PATH; returns the environment."""

    def make(lines: str, **run: object) -> dict[str, str]:
        sudo = tmp_path / "sudo"
        sudo.write_text(f"#!/bin/sh\n{lines}\n")
        sudo.chmod(0o755)
        return {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LAB_INVENTORY": str(inventory(run=run))}

    return make


def test_a_sudo_that_would_ask_where_no_terminal_is_is_not_asked(sudo_is):
    said = refusal(child(NOT_ROOT, "network", "open", "--why", "two words", env=sudo_is("exit 1")), code=3)
    assert "sudo wants a password" in said and "type `sudo lab network open --why 'two words'`" in said


def test_without_root_the_same_command_runs_under_sudo_from_the_same_folder(sudo_is, tmp_path):
    mine = {
        "base_url": "http://127.0.0.1:1/v1",
        "key_env": "MY_KEY",
        "management_key_env": "MY_MANAGEMENT_KEY",
    }
    environment = sudo_is(
        'pwd\nfor word in "$@"; do printf "%s\\n" "$word"; done', run_providers={"mine": mine}
    )
    environment["OPENROUTER_API_KEY"] = "sk-canary"
    (tmp_path / "here").mkdir()
    done = child(NOT_ROOT, "status", "--json", env=environment, cwd=tmp_path / "here")
    words = done.stdout.splitlines()
    assert words[0] == str(tmp_path / "here")  # relative paths go on meaning the same
    assert words[-2:] == ["status", "--json"]
    passed = set(words[1].partition("=")[2].split(","))
    assert passed > {"OPENROUTER_API_KEY", "MY_KEY", "MY_MANAGEMENT_KEY", "LAB_RUNS"}
    assert "sk-canary" not in done.stdout + done.stderr  # a name is passed, never the key
    assert "asking libvirt needs root: sudo lab status" in done.stderr


# libvirt's test driver in place of the machine's own, which no unit test may start or change.
OTHER_LIBVIRT = (
    "from labkit import guest, host\nhost.ensure_libvirt = lambda: False\n"
    "guest.Hypervisor.__init__.__defaults__ = ('test:///default',)"
)


@pytest.fixture
def elsewhere(tmp_path, inventory):
    """Runs `lab ...` against the test driver; its inventory and its runs are in a temporary folder."""
    environment = {**os.environ, "LAB_INVENTORY": str(inventory()), "LAB_RUNS": str(tmp_path / "runs")}
    return lambda *arguments: child(OTHER_LIBVIRT, *arguments, env=environment, cwd=tmp_path)


@AS_ROOT
@pytest.mark.parametrize("verb", [["run", "--model", "rehearsal"], ["down"]])
def test_a_second_command_is_told_who_is_at_work(elsewhere, at_work, verb):
    said = refusal(elsewhere(*verb), code=3)
    assert f"`lab demo` (process {at_work.pid}" in said and "is at work on the lab 'unit'" in said


@AS_ROOT
@pytest.mark.parametrize("verb", [["revert"], ["run", "--model", "rehearsal"], ["down"]])
def test_a_verb_with_nothing_to_work_on_leaves_nothing_on_the_disk(elsewhere, tmp_path, verb):
    done = elsewhere(*verb)
    assert (done.returncode, "nothing to remove" in done.stdout) in ((3, False), (0, True)), done.stderr
    assert not (tmp_path / "state").exists()


@AS_ROOT
def test_a_second_collect_says_so_in_words_and_as_json(elsewhere, tmp_path):
    folder, _ = synthetic_run.build(tmp_path / "runs", steps=2)
    state.update(tmp_path / "state" / "unit", run=folder.name, collected=False)
    done = elsewhere("collect")
    assert done.returncode == 0 and "was collected before" in done.stdout and str(folder) in done.stdout
    answer = json.loads(elsewhere("collect", "--json").stdout)
    assert answer == {"run": folder.name, "folder": str(folder), "collected_before": True}


def test_a_copy_onto_a_full_disk_names_the_full_one():
    program = (
        "import errno\nfrom labkit import runs\n"
        "def list_runs():\n"
        "    raise OSError(errno.ENOSPC, 'no room', '/has/room', None, '/is/full')\n"
        "runs.list_runs = list_runs"
    )
    assert "full: /is/full" in child(program, "runs").stderr
