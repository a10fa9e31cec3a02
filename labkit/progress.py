"""HOST: what a person sees while something takes time: step, elapsed, what it waits for. Talks on stderr."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

from rich.console import Console
from rich.text import Text

from labkit.analysis.text import folded, harmless

HEARTBEAT_SECONDS = 15
SPINNER_COLUMNS = 3


def fitted(text: str, stream: TextIO, indent: str = "  ") -> str:
    """The text folded to a terminal's width; as it is where the stream is none: programs want whole lines."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError, AttributeError):  # no terminal, closed, none at all
        return text
    return folded(text, columns, indent) if columns else text


class Terminal(Console):
    """A console whose reader may leave (`| head`): what is at work goes on, and the rest goes nowhere."""

    def tell(self, text: str, indent: str = "  ") -> None:
        """Print what a person reads, without its control characters and no wider than the terminal."""
        self.print(Text(fitted(harmless(text), self.file, indent)), soft_wrap=True)

    def on_broken_pipe(self) -> None:
        self.quiet = True
        hush(self.file)


def hush(stream: TextIO) -> None:
    """Let what is written to a stream whose reader left go nowhere from now on, without a complaint."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Progress:
    """Prints steps with their duration; a live line on a terminal, plain lines elsewhere."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Terminal(stderr=True, highlight=False)
        self.begin = time.monotonic()
        self._detail = ""

    def say(self, text: str) -> None:
        """A line of talk."""
        clock = self._clock()
        line = fitted(f"{clock} {harmless(text)}", self.console.file, " " * (len(clock) + 1))
        self.console.print(Text.assemble((clock, "dim"), line.removeprefix(clock)), soft_wrap=True)

    def detail(self, text: str) -> None:
        """What the running step waits for just now."""
        self._detail = harmless(text)

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Show `title` as running, and how long it took when it is over."""
        self._detail = ""
        started = time.monotonic()
        over = threading.Event()
        show = self._live if self.console.is_terminal else self._plain
        thread = threading.Thread(target=show, args=(title, started, over), daemon=True)
        thread.start()
        word = "failed"
        try:
            yield
            word = "done"
        finally:
            over.set()
            thread.join()
            self.say(f"{title}: {word} ({time.monotonic() - started:.0f} s)")

    def _live(self, title: str, started: float, over: threading.Event) -> None:
        with self.console.status("") as status:
            while not over.wait(0.25):
                head = f"{self._clock()} {title} ({time.monotonic() - started:.0f} s) "
                line = Text.assemble(head, (self._detail, "dim"))
                line.truncate(max(self.console.width - SPINNER_COLUMNS, 1), overflow="ellipsis")
                status.update(line)

    def _plain(self, title: str, started: float, over: threading.Event) -> None:
        self.say(f"{title} ...")
        while not over.wait(HEARTBEAT_SECONDS):
            detail = f": {self._detail}" if self._detail else ""
            self.say(f"{title}, {time.monotonic() - started:.0f} s{detail}")

    def _clock(self) -> str:
        seconds = int(time.monotonic() - self.begin)
        return f"{seconds // 60:2d}:{seconds % 60:02d}"


def warn(text: str) -> None:
    """One line on stderr, or two: `lab: what happened`, and below what to type."""
    try:
        print(fitted(text, sys.stderr, " " * len("lab: ")), file=sys.stderr, flush=True)
    except BrokenPipeError:
        hush(sys.stderr)
