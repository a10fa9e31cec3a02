"""TESTS: the live view: what a person sees of a run, on a terminal and without, and how it is left."""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from descriptors import readable
from loopback import until
from rich.console import Console

from labkit.errors import LabError
from labkit.gateway.files import JsonLines
from labkit.gateway.progress import Progress, plain
from labkit.gateway.views import EVENTS
from labkit.watch import View, _live, watch

ROOT = Path(__file__).parents[3]
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m bell\x07 \u202egnirts\u200b\x00 end"


@pytest.fixture
def run_dir(tmp_path, make_config):
    make_config().save(tmp_path)
    return tmp_path


def push(run_dir: Path, *rows: dict) -> None:
    lines = JsonLines(run_dir / EVENTS)
    lines.append(list(rows))
    lines.close()


def session_rows(event) -> list[dict]:
    note = json.dumps({"filename": "fsync.md", "content": "x"})
    common = {"phase": "EXPLORATION", "elapsed_seconds": 12.5, "step_number": 3}
    return [
        event(1, event_type="RUN_STARTED"),
        event(2, event_type="WORKER_THOUGHT", sanitized_output="I measure first.", cost_usd=0.002, **common),
        event(3, event_type="TOOL_CALL", tool_name="execute_shell", command_or_input="nproc", **common),
        event(4, event_type="TOOL_CALL", tool_name="write_scratchpad", command_or_input=note, **common),
        event(5, event_type="INSPECTOR_DECISION", guard_status="BLOCK", guard_reason="injected", **common),
    ]


def sealed(event, event_id: int) -> dict:
    summary = json.dumps({"status": "sealed", "stop_reason": "report delivered", "steps": 3})
    return event(event_id, event_type="RUN_SEALED", sanitized_output=summary, step_number=3)


def shown(run_dir: Path) -> str:
    view = View(run_dir)
    view.poll()
    console = Console(file=io.StringIO(), width=100)
    console.print(view.render())
    return console.file.getvalue()


def test_the_view_shows_the_mode_of_the_network(run_dir):
    (run_dir / "run.json").write_text('{"network": "sealed"}')
    assert any(line.split()[1:3] == ["network", "sealed"] for line in shown(run_dir).splitlines())


def test_the_view_shows_phase_step_money_thought_command_and_counts(run_dir, event):
    push(run_dir, *session_rows(event))
    seen = shown(run_dir)
    for piece in (
        "EXPLORATION · step 3",
        "of 3:00",
        "$0.0020 of $1.00",
        "I measure first.",
        "1 notes",
        "1 blocked",
    ):
        assert piece in seen
    assert "write_scratchpad" in seen and "not running" in seen


def test_on_a_narrow_terminal_the_notice_is_there_whole(run_dir):
    view = View(run_dir)
    view.notice = "asked the session to finish: it writes its report now. Ctrl-C again leaves it to itself"
    console = Console(file=io.StringIO(), width=60)
    console.print(view.render())
    assert " ".join(re.findall(r"[\w:.-]+", console.file.getvalue())).endswith("leaves it to itself")


def test_a_terminal_that_is_made_smaller_is_wiped_once(run_dir):
    console = Console(file=io.StringIO(), width=100, height=30, force_terminal=True)
    wiped = "\x1b[2J"
    with _live(console, View(run_dir)) as draw:
        draw([])
        assert wiped not in console.file.getvalue()
        console.size = (60, 30)
        draw([])
        draw([])
    assert console.file.getvalue().count(wiped) == 1


def test_before_the_first_event_the_view_says_that_the_harness_is_starting(run_gateway):
    running = run_gateway()
    view = View(running.folder)
    view.quiet_seconds = lambda: 20.0
    console = Console(file=io.StringIO(), width=140)
    console.print(view.render())
    assert "no event for 0:20, waiting for the harness to start" in console.file.getvalue()


def test_after_a_tool_call_the_view_waits_for_the_tool():
    progress = Progress()
    progress.apply({"event_type": "TOOL_CALL", "tool_name": "execute_shell", "command_or_input": "make"})
    assert progress.waits_for == "the tool to end"


def test_what_a_guest_says_does_not_stay_in_memory_by_the_megabyte(event, monkeypatch):
    monkeypatch.setattr("labkit.gateway.progress.MAX_NAMES", 20)
    progress = Progress()
    for n in range(30):
        given = json.dumps({"name": f"{n}-" + "x" * 100_000})
        call = {"tool_name": "write_scratchpad", "command_or_input": given, "phase": "p" * 100_000}
        progress.apply(event(n, event_type="TOOL_CALL", **call))
        progress.apply(event(n, event_type="WORKER_THOUGHT", sanitized_output="t" * 100_000))
    assert len(progress.notes) == 20 and len(pickle.dumps(progress)) < 20_000


def test_masters_and_notes_are_counted_apart_and_each_name_once(event):
    progress = Progress()
    for name in ("a.md", "notes/a.md", "b.md", "master_v1.md"):
        call = json.dumps({"filename": name})
        progress.apply(event(1, event_type="TOOL_CALL", tool_name="write_scratchpad", command_or_input=call))
    progress.apply(event(2, event_type="TOOL_CALL", tool_name="write_script", command_or_input="{cut"))
    assert (progress.notes, progress.masters, progress.scripts) == ({"a.md", "b.md"}, {"master_v1.md"}, set())


def test_text_of_an_agent_cannot_steer_the_terminal():
    seen = plain(EVIL)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202e\u200b]", seen)
    assert "bell" in seen and "end" in seen
    assert plain("a\nb\tc   d") == "a b c d"
    assert len(plain("x" * 10_000, 300)) == 300


def test_the_view_and_the_lines_are_both_free_of_control_characters(run_dir, event):
    hostile = {"tool_name": EVIL, "command_or_input": EVIL, "sanitized_output": EVIL, "phase": EVIL}
    push(
        run_dir, event(1, event_type="WORKER_THOUGHT", **hostile), event(2, event_type="TOOL_CALL", **hostile)
    )
    push(run_dir, event(3, event_type=EVIL, guard_reason=EVIL, **hostile), sealed(event, 4))
    console = Console(file=io.StringIO(), width=100)
    watch(run_dir, on_interrupt=lambda: None, console=console)
    for seen in (shown(run_dir), console.file.getvalue()):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u200b]", seen)


def test_without_a_terminal_each_event_is_a_line_and_the_seal_ends_it(run_dir, event):
    push(run_dir, *session_rows(event))
    console = Console(file=io.StringIO(), width=100)
    timer = threading.Timer(0.5, push, (run_dir, sealed(event, 6)))
    timer.start()
    outcome = watch(run_dir, on_interrupt=lambda: None, console=console)
    lines = console.file.getvalue().splitlines()
    assert outcome.how == "sealed" and outcome.summary["stop_reason"] == "report delivered"
    assert lines[1] == "step 3 EXPLORATION WORKER_THOUGHT I measure first."
    assert lines[2] == "step 3 EXPLORATION TOOL_CALL execute_shell nproc"
    assert lines[-1].endswith("RUN_SEALED report delivered")


def test_a_run_whose_gateway_is_gone_does_not_hold_the_terminal_for_ever(run_dir):
    console = Console(file=io.StringIO())
    assert watch(run_dir, on_interrupt=lambda: None, console=console, lost_seconds=0.2).how == "lost"
    assert "`lab run --resume last` starts it again" in console.file.getvalue()


def test_while_the_gateway_is_gone_no_time_of_the_run_passes(run_dir, event):
    push(run_dir, *session_rows(event))
    view = View(run_dir)
    view.poll()
    left = view.seconds_left()
    os.utime(run_dir / EVENTS, (time.time() - 60,) * 2)
    assert view.seconds_left() == left


def when(condition, action) -> None:
    """In a thread beside `watch`: once the condition holds."""
    threading.Thread(target=lambda: (until(condition), action()), daemon=True).start()


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def ctrl_c_is_heard():
    """Before `watch` listens a Ctrl-C would end these tests."""
    before = signal.getsignal(signal.SIGINT)
    return lambda: signal.getsignal(signal.SIGINT) is not before


def test_ctrl_c_asks_once_and_a_second_one_leaves(run_dir):
    asked = []
    console = Console(file=io.StringIO())
    when(ctrl_c_is_heard(), ctrl_c)
    when(lambda: "asked the session" in console.file.getvalue(), ctrl_c)
    outcome = watch(run_dir, on_interrupt=lambda: asked.append(1), console=console)
    assert outcome.how == "left" and asked == [1]
    assert "asked the session to finish" in console.file.getvalue()


def test_a_request_to_finish_that_fails_is_told_and_watching_goes_on(run_dir, event):
    def refuse() -> None:
        raise LabError("the folder is not writable")

    console = Console(file=io.StringIO())
    when(ctrl_c_is_heard(), ctrl_c)
    when(lambda: "could not be asked" in console.file.getvalue(), lambda: push(run_dir, sealed(event, 1)))
    assert watch(run_dir, on_interrupt=refuse, console=console).how == "sealed"
    assert "could not be asked to finish: the folder is not writable" in console.file.getvalue()


def test_watching_a_folder_without_a_run_is_an_error_in_words(tmp_path):
    with pytest.raises(LabError, match="no gateway settings"):
        watch(tmp_path, on_interrupt=lambda: None)


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_on_a_terminal_q_leaves_and_the_terminal_is_as_it_was(run_dir, event):
    import termios

    push(run_dir, *session_rows(event))
    code = "import sys; from pathlib import Path; from labkit.watch import watch\n"
    code += "print(watch(Path(sys.argv[1]), on_interrupt=print).how)"
    controller, terminal = os.openpty()
    before = termios.tcgetattr(terminal)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    command = [sys.executable, "-c", code, str(run_dir)]
    child = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment)
    try:
        seen = read_until(controller, b"I measure first.")
        os.write(controller, b"q")
        seen += read_until(controller, b"left")
        assert child.wait(20) == 0
        assert termios.tcgetattr(terminal)[3] == before[3]
        assert b"q leaves" in seen and b"EXPLORATION" in seen
    finally:
        child.kill()
        child.wait()
        os.close(controller)
        os.close(terminal)


def read_until(descriptor: int, wanted: bytes) -> bytes:
    seen, deadline = b"", time.monotonic() + 60
    while wanted not in seen and time.monotonic() < deadline:
        if readable(descriptor, 0.2):
            seen += os.read(descriptor, 65536)
    assert wanted in seen, seen
    return seen
