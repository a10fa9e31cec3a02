"""TESTS: what a person reads fits a terminal of 80 columns, and what a program reads keeps its lines."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest
from rich.console import Console

from labkit import demo
from labkit.analysis.text import folded
from labkit.config import REPO
from labkit.doctor import Finding
from labkit.progress import Progress, Terminal
from labkit.verbs.guest import _findings_table

LONG = "the session of the guest was ended: `lab run --resume 20261129-201202-b0dd88` goes on with it, " * 3
COLUMNS = 80


def at_a_terminal(*words: str, cwd: str, kind: str = "dumb") -> list[str]:
    """The lines that Python, given these words, prints on a terminal of 80 columns, both streams."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    environment = {**os.environ, "PYTHONPATH": str(REPO), "LAB_RUNS": cwd, "TERM": kind}
    command = [sys.executable, *words]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, env=environment)
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 4096):
            said += part
    except OSError:  # how Linux says that nobody writes any more
        pass
    process.wait(timeout=60)
    os.close(ours)
    return said.decode().replace("\r", "").splitlines()


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate", "--hours", "0.05"],
        ["simulate", "--provider", "list"],
        ["query", "list"],
        ["run", "--prompt", "a-prompt-that-is-not-there-and-has-a-name-of-half-a-line.md"],
        ["query", "nothing-of-that-name"],
    ],
    ids=" ".join,
)
def test_no_line_is_wider_than_the_terminal(tmp_path, arguments):
    lines = at_a_terminal("-m", "labkit", *arguments, cwd=str(tmp_path))
    assert lines and [line for line in lines if len(line) > COLUMNS] == []


def test_a_line_is_folded_between_words_and_what_is_to_be_typed_stays_whole():
    lines = folded(LONG, COLUMNS).split("\n")
    assert max(map(len, lines)) <= COLUMNS and all(line.startswith("  ") for line in lines[1:])
    assert sum("`lab run --resume 20261129-201202-b0dd88`" in line for line in lines) == 3
    assert " ".join(" ".join(lines).split()) == LONG.strip()


def test_a_path_longer_than_the_terminal_is_not_broken():
    path = "/" + "folder/" * 20
    assert path in folded(f"the record is in {path}", COLUMNS).split("\n")[-1]


def test_where_no_terminal_is_a_line_stays_a_line():
    said = io.StringIO()
    Progress(Terminal(file=said, highlight=False)).say(LONG)
    assert len(said.getvalue().splitlines()) == 1


def test_what_doctor_found_fits_with_what_to_type_below_it():
    said = io.StringIO()
    Console(file=said, width=COLUMNS).print(
        _findings_table([Finding("network", "fail", LONG, "type [this]")])
    )
    lines = said.getvalue().splitlines()
    assert max(map(len, lines)) <= COLUMNS and lines[-1].strip() == "-> type [this]"


def test_the_end_of_the_demo_fits():
    assert max(map(len, demo.NEXT.splitlines())) <= COLUMNS


def test_a_step_with_its_clock_ends_on_a_terminal_as_it_does_elsewhere(tmp_path):
    """Rich's live display ends by a method of the console, which a name of ours must not hide."""
    program = (
        "from labkit.progress import Progress\n"
        "progress = Progress()\n"
        "with progress.step('a step of the demo'): progress.detail('half of it')\n"
        "progress.say('over')\n"
    )
    lines = at_a_terminal("-c", program, cwd=str(tmp_path), kind="xterm")
    assert "Traceback" not in "".join(lines) and "over" in lines[-1]
