"""HOST: the live view of a run in the terminal, from the gateway's copy of the events.

Reads host files only and can be left and rejoined at any time. The text of agents is shown without its
control characters: a terminal must not obey it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from labkit import keyboard
from labkit.analysis.text import dollars
from labkit.errors import LabError
from labkit.gateway import commands, network, process, watchdog
from labkit.gateway.config import GatewayConfig
from labkit.gateway.events import EventTail
from labkit.gateway.progress import Progress, clock, event_line, plain
from labkit.gateway.views import EVENTS

TICK_SECONDS = 0.3
QUIET_SECONDS = 10.0  # silence shorter than this is normal and not worth a line
GATEWAY_GONE = "not running: the guest waits and keeps what it has; `lab run --resume last` starts it again"
LOST_SECONDS = 60.0  # a dead gateway may be started again; after this nobody is likely to


class Outcome(NamedTuple):
    """How watching ended: `sealed` (with the run summary), `left` by the person, `lost` (gateway gone), or
    `guest` (gone; `word` is its state)."""

    how: str
    summary: dict | None = None
    word: str = ""


def watch(
    run_dir: Path,
    *,
    on_interrupt: Callable[[], object],
    console: Console | None = None,
    lost_seconds: float = LOST_SECONDS,
    guest_gone: Callable[[], str] = lambda: "",
) -> Outcome:
    """Show the run whose gateway folder is RUN_DIR until it is sealed or the person leaves.

    `q` leaves; the first Ctrl-C calls on_interrupt, the second leaves. Without a terminal: a line an event.
    guest_gone: gives the guest's state once it is gone, else an empty text.
    """
    view = View(Path(run_dir), lost_seconds)
    console = console or Console()
    show = _live if console.is_terminal else _lines
    with keyboard.interrupts() as interrupts, show(console, view) as draw, keyboard.keys(console) as pressed:
        asked = 0
        while True:
            rows = view.poll()
            if len(interrupts) > asked == 0:
                asked = 1
                view.notice = _ask(on_interrupt)
            draw(rows)
            if outcome := view.outcome(left=pressed(TICK_SECONDS) == "q" or len(interrupts) > 1):
                return outcome
            if word := guest_gone():
                return Outcome("guest", word=word)


def _ask(on_interrupt: Callable[[], object]) -> str:
    try:
        on_interrupt()
    except LabError as error:
        return f"the session could not be asked to finish: {error.message}"
    return "asked the session to finish: it writes its report now. Ctrl-C again leaves it to itself"


class View:
    """What is known of the run: settings, progress, how long nothing came, whether the gateway lives."""

    def __init__(self, run_dir: Path, lost_seconds: float = LOST_SECONDS) -> None:
        self.run_dir = run_dir
        self.config = GatewayConfig.load(run_dir)
        self.progress = Progress()
        self.notice = ""
        self.alive = process.alive(run_dir)
        self.extension = commands.Extension(run_dir)
        self._tail = EventTail(run_dir)
        self._lost_seconds = lost_seconds
        self._last_alive = time.monotonic()

    def poll(self) -> list[dict]:
        """Take in what is new and return it."""
        rows = self._tail.poll()
        for row in rows:
            self.progress.apply(row)
        self.alive = process.alive(self.run_dir)
        self._last_alive = time.monotonic() if self.alive else self._last_alive
        return rows

    def outcome(self, left: bool) -> Outcome | None:
        if self.progress.summary is not None:
            return Outcome("sealed", self.progress.summary)
        if left:
            return Outcome("left")
        lost = not self.alive and time.monotonic() - self._last_alive > self._lost_seconds
        return Outcome("lost") if lost else None

    def quiet_seconds(self) -> float:
        """Since the guest last pushed, or since the gateway started when it never did."""
        try:
            last = (self.run_dir / EVENTS).stat().st_mtime if self.progress.events else self.config.started
        except OSError:
            last = self.config.started
        return max(0.0, time.time() - last)

    def seconds_left(self) -> float:
        is_counting = self.progress.events and self.alive and not self.progress.paused
        running = self.progress.elapsed + (self.quiet_seconds() if is_counting else 0.0)
        return max(0.0, self.length - running)

    @property
    def length(self) -> float:
        """Seconds of the run, extensions included."""
        return (self.config.minutes + self.extension.minutes) * 60

    def render(self) -> Panel:
        progress, config = self.progress, self.config
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(overflow="fold")
        rows = {
            "phase": f"{progress.phase or 'not started'} · step {progress.step}",
            "time left": f"{clock(self.seconds_left())} of {clock(self.length)}",
            "money": f"${progress.cost_usd:.4f} of {dollars(config.budget_usd + self.extension.usd)}",
            "network": network.mode(self.run_dir),
            "thought": progress.thought,
            "command": progress.command,
            "written": f"{len(progress.notes)} notes · {len(progress.scripts)} scripts · "
            f"{len(progress.masters)} masters",
            "inspector": f"{progress.reviews} reviews · {progress.blocks} blocked",
            "asked": self._asked(),
            "gateway": self._gateway(),
            "watchdog": watchdog.unresolved(self.run_dir),
        }
        rows = {name: text for name, text in rows.items() if text or name in ("thought", "command")}
        for name, text in rows.items():
            table.add_row(name, Text(plain(text, 300)))  # all of it: a phase is the guest's word too
        footer = self.notice or "q leaves, the run goes on · Ctrl-C asks the session to finish"
        inside = Group(table, Text(footer, style="dim"))
        return Panel(inside, title=Text(f"run {plain(config.run_id)}"), title_align="left")

    def _asked(self) -> str:
        """The last command and how far it came."""
        last = commands.listed(self.run_dir)[-1:]
        return "".join(f"{item['name']}: {item['state']}" for item in last)

    def _gateway(self) -> str:
        if self.progress.summary is not None:
            return "the run is sealed"
        if not self.alive:
            return GATEWAY_GONE
        if self.progress.paused:
            return "alive · paused on request, `lab unpause` lets the session go on"
        quiet = self.quiet_seconds()
        if quiet < QUIET_SECONDS:
            return "alive"
        return f"alive · no event for {clock(quiet)}, waiting for {self.progress.waits_for}"


@contextlib.contextmanager
def _live(console: Console, view: View) -> Iterator[Callable[[list[dict]], None]]:
    size = console.size

    def draw(rows: list[dict]) -> None:
        nonlocal size
        if console.size != size:  # a terminal that is made smaller folds what stands there: it would remain
            size = console.size
            console.clear()
        live.refresh()

    with Live(console=console, auto_refresh=False, get_renderable=view.render) as live:
        yield draw


@contextlib.contextmanager
def _lines(console: Console, view: View) -> Iterator[Callable[[list[dict]], None]]:
    said = {"notice": "", "minute": 0, "gone": False}

    def draw(rows: list[dict]) -> None:
        for row in rows:
            console.print(Text(event_line(row)), soft_wrap=True)
        if view.notice != said["notice"]:
            said["notice"] = view.notice
            console.print(Text(view.notice), soft_wrap=True)
        gone = not view.alive and view.progress.summary is None
        if gone and not said["gone"]:
            console.print(Text(f"gateway {GATEWAY_GONE}"), soft_wrap=True)
        said["gone"] = gone
        minute = 0 if gone else int(view.quiet_seconds() // 30)
        if minute > said["minute"] and view.progress.summary is None:
            line = f"no event for {clock(view.quiet_seconds())}: waiting for {view.progress.waits_for}"
            console.print(Text(line), soft_wrap=True)
        said["minute"] = minute

    yield draw
