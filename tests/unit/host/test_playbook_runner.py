"""TESTS: the one place that starts Ansible, with real playbooks on this machine: words, secrets, Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from loopback import until

from labkit import leftovers, playbooks
from labkit.config import REPO
from labkit.errors import EVIDENCE, NOT_READY, UNREACHABLE, LabError
from labkit.verbs import shared

pytestmark = pytest.mark.slow

HEAD = "- name: Play\n  hosts: hypervisors\n  tasks:\n"


@pytest.fixture
def play(tmp_path, lab):
    """Runs these tasks as a playbook; variables go in as `lab run` gives them."""

    def run(tasks: str, on_task=lambda _name: None, **variables):
        (tmp_path / "one.yml").write_text(HEAD + tasks)
        name = os.path.relpath(tmp_path / "one", REPO / "playbooks")
        return playbooks.run(name, lab, on_task, **variables)

    return run


def test_a_playbook_tells_its_tasks_as_they_start_and_gives_what_they_found(play):
    told = []
    outcome = play(
        """
    - name: Look at the variables
      ansible.builtin.assert: {that: ["lab_name == 'unit'", "extra.deep == '[x]'"]}
    - name: Change something
      ansible.builtin.command: {cmd: echo changed}
""",
        told.append,
        extra={"deep": "[x]"},
    )
    assert told == ["Look at the variables", "Change something"]
    assert outcome.changed == 1 and outcome.results["Change something"]["stdout"] == "changed"


def test_no_variable_of_a_run_is_on_a_command_line_that_others_can_read(play):
    outcome = play(
        """
    - name: Read every command line of this machine
      ansible.builtin.shell: >-
        cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | awk 'index($0, ENVIRON["WANTED"])' | wc -l
      environment: {WANTED: "{{ token }}"}
""",
        token="canary-4f7b21-and-its-end",
    )
    assert outcome.results["Read every command line of this machine"]["stdout"] == "0"


def test_a_failing_task_is_named_with_its_own_words(play):
    with pytest.raises(LabError, match="Break: .*no such thing") as caught:
        play("    - name: Break\n      ansible.builtin.shell: echo no such thing >&2; exit 3\n")
    assert caught.value.code == NOT_READY and "stopped there" in caught.value.hint


def failure(result: dict, kind: str = "runner_on_failed") -> LabError:
    return playbooks._failure("up", [(kind, "Task", result)], "")


def test_a_sentence_of_ours_comes_through_a_module_with_its_cure_and_code():
    said = str(LabError("the revert is not proven", "do not use this guest"))
    error = failure({"msg": said, "lab_code": EVIDENCE})
    assert (error.message, error.hint, error.code) == (
        "the revert is not proven",
        "do not use this guest",
        EVIDENCE,
    )


def test_collecting_a_session_that_still_runs_reads_as_one_sentence():
    import yaml

    tasks = yaml.safe_load((REPO / "roles/collect/tasks/prepare.yml").read_text())
    refusal = next(task["ansible.builtin.assert"] for task in tasks if "ansible.builtin.assert" in task)
    error = failure({"msg": refusal["fail_msg"], "evaluated_to": False})
    assert error.message == "the session is still running"
    assert error.hint.startswith("`lab finish`") and "lab collect --stop" in error.hint


def test_a_guest_that_does_not_answer_has_an_exit_code_of_its_own():
    error = failure({"msg": "ssh: connect to host: timed out"}, "runner_on_unreachable")
    assert error.code == UNREACHABLE and "does not answer" in error.message


def test_the_failed_item_of_a_loop_speaks_for_it():
    items = [{"failed": False, "msg": "fine"}, {"failed": True, "msg": "the second one broke"}]
    assert "the second one broke" in failure({"msg": "One or more items failed", "results": items}).message


def test_a_full_disk_is_said_with_where_to_look():
    error = failure({"msg": "OSError: [Errno 28] No space left on device: '/var/lib/vm-lab/lab'"})
    assert "Task: " in error.message and "df -h" in error.hint


def test_a_playbook_that_never_began_says_why():
    error = playbooks._failure("up", [], "ERROR! the role 'nothing' was not found")
    assert "the role 'nothing' was not found" in error.message


@pytest.fixture
def ctrl_c_is_heard():
    """A shell's `&` starts its command with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_the_playbook_and_the_next_ctrl_c_still_works(play, ctrl_c_is_heard):
    started, pressed = threading.Event(), []

    def press() -> None:
        started.wait(100)
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        play("    - name: Wait\n      ansible.builtin.command: sleep 600\n", lambda _name: started.set())
    assert time.monotonic() - pressed[0] < 60
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)


WAITING = """
    - name: Wait
      ansible.builtin.command: sleep 600
    - name: After
      ansible.builtin.command: touch {after}
"""
COMMAND = """
import os, signal, sys
from pathlib import Path
from labkit import config, playbooks
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
lab = config.load(Path(sys.argv[1]))
playbooks.run(sys.argv[2], lab, lambda name: print(name, flush=True))
"""


@pytest.fixture
def at_work(tmp_path, lab):
    """Another process in the middle of a playbook whose task takes ten minutes, as `lab up` may be."""
    (tmp_path / "one.yml").write_text(HEAD + WAITING.format(after=tmp_path / "after"))
    name = os.path.relpath(tmp_path / "one", REPO / "playbooks")
    command = [sys.executable, "-c", COMMAND, str(lab.inventory), name]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=REPO
    )
    assert process.stdout.readline() == "Wait\n"
    until(lambda: "sleep" in of_the_playbook(lab), 100)
    yield process
    process.kill()
    process.wait()
    leftovers.end(lab.dir)


def of_the_playbook(lab) -> list[str]:
    """Names of the programs of this host that belong to a playbook of this lab."""
    names = []
    for pid in leftovers._marked(lab.dir):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ends by itself just now
            names.append((leftovers.PROC / str(pid) / "comm").read_text().strip())
    return names


@pytest.mark.parametrize(
    ("number", "mitogen"), [(signal.SIGTERM, "1"), (signal.SIGTERM, "0"), (signal.SIGHUP, "1")]
)
def test_a_command_that_is_ended_takes_its_playbook_along(monkeypatch, request, lab, number, mitogen):
    monkeypatch.setenv("LAB_MITOGEN", mitogen)
    process = request.getfixturevalue("at_work")
    process.send_signal(number)
    process.wait(timeout=60)
    assert process.returncode != 0
    until(lambda: of_the_playbook(lab) == [])  # what was killed takes a moment to be gone
    assert not (lab.inventory.parent / "after").exists()


def test_what_a_killed_command_left_at_work_is_ended_by_the_next_one_which_says_so(
    at_work, lab, tmp_path, capsys
):
    at_work.kill()
    at_work.wait()
    assert leftovers.end(tmp_path / "state/other") == 0  # not by a command of another lab
    assert "sleep" in of_the_playbook(lab) and leftovers.count(lab.dir) > 0
    with shared.alone(lab, "up"):
        assert of_the_playbook(lab) == []
    assert "an earlier command, which was killed" in capsys.readouterr().err
    with shared.alone(lab, "up"):
        assert capsys.readouterr().err == ""


def test_nothing_of_a_playbook_is_left_in_the_temporary_folder(play, tmp_path, monkeypatch):
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(playbooks.tempfile, "tempdir", str(folder))
    play("    - name: Nothing\n      ansible.builtin.meta: noop\n")
    assert list(folder.iterdir()) == []
    assert Path(playbooks.tempfile.gettempdir()) == folder


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace of its own wants root")
def test_the_playbook_of_a_container_with_the_same_paths_is_let_be(tmp_path):
    sleeping = ["unshare", "--mount", "--propagation", "unchanged", "sleep", "60"]
    with subprocess.Popen(sleeping, env=os.environ | leftovers.mark(tmp_path)) as process:
        comm = leftovers.PROC / str(process.pid) / "comm"
        while comm.read_text().strip() != "sleep":
            if process.poll() is not None:
                pytest.skip("this machine makes no mount namespace")
            time.sleep(0.02)
        assert leftovers.end(tmp_path) == 0 and process.poll() is None
        process.kill()
