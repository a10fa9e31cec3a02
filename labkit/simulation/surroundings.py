"""HOST: what a simulated run meets besides its models: shell, pages, gateway, incidents. Starts nothing."""

from __future__ import annotations

import contextlib
import math
import os
import re
import sqlite3
import threading
from collections import deque
from typing import Any

from harness.gateway import DEAD_SECONDS, FINISH_GRACE, GatewayLink
from harness.tools.browser_fetch import NotFetched, Page
from labkit.simulation.chance import Chance
from labkit.simulation.script import COMMANDS, Incident, Script
from labkit.simulation.virtual import VirtualTime

FULL, USUAL = 99.0, 12.0  # per cent of the disk
LONGEST_LINES = 60
CUT = "interrupted: the run is being ended"  # harness/tools/execute_shell.py


class Shell:
    """Stands in for the guest's shell: reads the command, answers from the script, starts nothing."""

    def __init__(self, script: Script, chance: Chance, virtual: VirtualTime, recorded: Any = None) -> None:
        self.script, self.chance, self.virtual = script, chance, virtual
        self.recorded = recorded
        self.commands = 0

    def run(self, line: str, desk: Any, sink: int, limit: float) -> str:
        """Writes the output, lets its time pass, says how it ended."""
        self.commands += 1
        output, seconds, ending = self._answer(line, desk)
        self.virtual.wait(min(seconds, limit), desk.stop)
        os.write(sink, output.encode("utf-8", errors="replace"))
        if ending == CUT:
            desk.stop.set()
        if desk.stop.is_set():
            return CUT
        return ending if seconds <= limit else f"killed after {limit:.0f} s"

    def _answer(self, line: str, desk: Any) -> tuple[str, float, str]:
        if self.recorded is not None:
            return self.recorded.shell(_as_asked(desk))
        seconds = self.chance.seconds(self.script.command_seconds, "shell seconds")
        for command in self.script.commands:
            if re.search(command.match, line):
                return command.output, command.seconds, f"exit code {command.exit_code}"
        stream = self.chance.stream("shell")
        lines = min(LONGEST_LINES, int(stream.lognormvariate(2.3, 0.8)))
        failed = stream.random() < 0.06
        return self.chance.lines(lines, "shell"), seconds, f"exit code {int(failed)}"

    def page(self, url: str, seconds: float) -> Page:
        """A page for browser_fetch. Raises NotFetched."""
        stop = threading.Event()
        text, took = self._page(url)
        self.virtual.wait(min(took, seconds), stop)
        if took > seconds:
            raise NotFetched(f"no complete answer within {seconds:.0f} s")
        if text is None:
            raise NotFetched("the server answered with status 404")
        return Page(url, "text/plain", "utf-8", text.encode("utf-8", errors="replace"))

    def _page(self, url: str) -> tuple[str | None, float]:
        if self.recorded is not None:
            return self.recorded.page(url)
        return self.chance.lines(25, "pages"), self.chance.seconds(
            self.script.command_seconds, "page seconds"
        )


def _as_asked(desk: Any) -> str:
    """The command as the record has it: the read-only shell gets it rewritten."""
    calls = (
        "SELECT command_or_input FROM execution_logs WHERE event_type = 'TOOL_CALL' ORDER BY id DESC LIMIT 1"
    )
    return desk.recorder.query(calls)[0][0]


class Link(GatewayLink):
    """The harness's own gateway link without its thread: each exchange happens at once, in virtual time."""

    def begin(self, virtual: VirtualTime, recorded: Any = None) -> None:
        self.virtual, self.recorded, self.away = virtual, recorded, False
        self.pushed, self.step = 0, 0
        self.waiting: deque[dict] = deque()

    def start(self) -> None:
        self.wake()

    def take_commands(self) -> list[dict]:
        """Between two steps: what a recorded harness took for itself passes; what it was asked is asked."""
        if self.recorded is not None:
            self.virtual.advance(self.recorded.between.pop(self.step, 0.0))
        self._ask_again()
        with contextlib.suppress(OSError):
            self._poll()
        return super().take_commands()

    def _ask_again(self) -> None:
        for command in self.recorded.asked.due(self.step, self.virtual.now()) if self.recorded else ():
            self.ask(command)

    def patience(self) -> float:
        """There is no thread that would have heard of a `finish` meanwhile, and no real time passes."""
        with contextlib.suppress(OSError):
            self._poll()
        return math.inf if self._finish_at is None else FINISH_GRACE

    def found_full(self) -> bool:
        """Whether a recorded session's disk was full by this step."""
        return self.recorded is not None and self.step >= self.recorded.full_from - 1

    def ask_the_rest(self) -> None:
        """What a person asked while the record was cut off."""
        for command in self.recorded.asked.due(math.inf, math.inf) if self.recorded else ():
            self.ask(command)

    def ask(self, command: dict) -> None:
        """A person's command, from now on until the harness asks for it."""
        self.waiting.append({**command, "id": len(self.waiting) + 1})

    def wake(self) -> None:
        try:
            while self._push():
                pass
            self._ask_again()
            self._poll()
            self._tell_obeyed()
            self.problem = ""
        except (OSError, ValueError, sqlite3.Error) as error:
            self.problem = str(error)

    def flush(self, last_id: int, seconds: float) -> bool:
        self.wake()
        if self.problem:
            self.virtual.advance(min(seconds, DEAD_SECONDS))
            self.wake()
        return self.watermark >= last_id

    def close(self) -> None:
        self.wake()
        self._let_go()

    def _call(self, path: str, body: dict | None = None) -> dict:
        if self.away:
            raise OSError("simulated: the gateway is away")
        if "events" in (body or {}):
            self.pushed = max(self.pushed, *(row["id"] for row in body["events"]))
            self.step = max(self.step, *(row["step_number"] or 0 for row in body["events"]))
            return {"watermark": self.pushed}
        return {"commands": list(self.waiting)}


class Incidents:
    """Puts the script's incidents on the virtual clock's agenda."""

    def __init__(self, script: Script, virtual: VirtualTime, link: Link, provider: Any, stop: Any) -> None:
        self.virtual, self.link, self.provider, self.stop = virtual, link, provider, stop
        self.disk = USUAL
        for incident in script.incidents:
            virtual.at(incident.at_minute * 60, lambda incident=incident: self._happen(incident))

    def _happen(self, incident: Incident) -> None:
        if incident.what in COMMANDS:
            self.link.ask({"id": 0, "name": incident.what, "args": incident.args})
        elif incident.what == "interrupt":
            self.stop.set()
        elif incident.what in ("disk_full", "disk_free"):
            self.disk = FULL if incident.what == "disk_full" else USUAL
        elif incident.what == "clock_jump":
            self.virtual.wall_offset += incident.hours * 3600
        else:
            self._gateway(away=True)
            self.virtual.at(self.virtual.now() + incident.minutes * 60, lambda: self._gateway(away=False))

    def _gateway(self, away: bool) -> None:
        self.link.away = self.provider.away = away
