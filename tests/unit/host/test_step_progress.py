"""TESTS: what a person sees while something takes time; no word of a task steers the terminal."""

from __future__ import annotations

import io
import re

import pytest
from loopback import until
from rich.console import Console

from labkit.progress import Progress


def progress(width: int = 60, terminal: bool = False) -> tuple[Progress, io.StringIO]:
    text = io.StringIO()
    return Progress(Console(file=text, width=width, force_terminal=terminal)), text


def test_a_step_says_that_it_began_and_that_it_is_done():
    shown, text = progress()
    with shown.step("building the guest"):
        pass
    lines = text.getvalue().splitlines()
    assert lines[0].endswith("building the guest ...")
    assert re.search(r"building the guest: done \(\d s\)$", lines[1])


def test_a_step_that_fails_says_so_and_lets_the_error_through():
    shown, text = progress()
    with pytest.raises(ZeroDivisionError), shown.step("dividing"):
        _ = 1 / 0
    assert re.search(r"dividing: failed \(\d s\)$", text.getvalue(), re.M)


@pytest.mark.parametrize("name", ["[/bold] closes nothing", "[red]not red[/red]", "[1;31m", "[link=x]"])
def test_brackets_in_a_name_are_shown_and_mean_nothing(name):
    shown, text = progress()
    with shown.step(name):
        shown.detail(name)
    shown.say(name)
    assert text.getvalue().count(name) == 3


def test_a_terminal_escape_in_a_guests_words_is_written_out():
    shown, text = progress()
    shown.say("before\x1b]0;title\x07 after\x1b[2J")
    assert "\x1b" not in text.getvalue() and "\x07" not in text.getvalue()
    assert "before" in text.getvalue() and "after" in text.getvalue()


def test_on_a_terminal_a_long_detail_is_cut_to_one_line():
    shown, text = progress(width=50, terminal=True)
    with shown.step("working"):
        shown.detail("[x] a very long task name " * 20)
        until(lambda: "…" in text.getvalue())
    drawn = text.getvalue()
    assert "working" in drawn and "…" in drawn
    assert "a very long task name [x] a very long task name" not in drawn


def test_a_long_line_off_a_terminal_stays_one_line_for_grep():
    shown, text = progress(width=40)
    shown.say("word " * 40)
    assert len(text.getvalue().splitlines()) == 1
