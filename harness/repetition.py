"""GUEST: notices that the Worker circles, by command and output, and says what to do, in three rungs.

    nudge    the same command brought the same output `limit` times in `window` steps: it is named
    refuse   it goes on: the command is not run for a while
    change   it is asked for still: its tool is withdrawn for some steps, and the window is cut, since what
             stands there again and again is what a model repeats

A new output is progress and clears a command. One that waits (`sleep 60; tail log`) may bring the same twice
as often. What the provider failed at is no repetition.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field

from harness.text import clean
from harness.tools.base import Outcome

NUDGE, REFUSE, CHANGE = "nudge", "refuse", "change"
REFUSED_WINDOWS = 4  # a command is refused for this many windows
CHANGE_STEPS = 3  # steps for which its tool is then withdrawn
REFUSAL = "Not run: this call brought the same answer again and again, and is refused for a while."
NAMED = 300  # characters of a command that a message shows
_WAITS = re.compile(r"\b(?:sleep|wait|inotifywait)\b|\btimeout\s+\d+\w?\s+tail\b")
# What differs although nothing happened: clocks, addresses, and what the harness puts into an output itself.
_NOISE = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?Z?|\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b|0x[0-9a-f]{6,}"
    r"|step-\d+(?:-\d+)?\.txt|(?<=untrusted_web_content id=\")[0-9a-f]+"
)
_IN_NOISE = (":", "0x", "step-", "untrusted_web_content")  # all of it holds one; most outputs hold none


@dataclass(frozen=True)
class Alarm:
    """rung: NUDGE, REFUSE or CHANGE. what: the command, in words. tool: its name."""

    rung: str
    what: str
    tool: str


@dataclass
class Repetition:
    """Remembers the calls of the last steps. All of it is plain data, so that a checkpoint can hold it.

    steps: for each step its calls, as [command, fingerprint]. warned: command to the fingerprint it was named
    for. refused: command to the step until which it is not run. asked: how often it was asked for since.
    """

    limit: int
    window: int
    number: int = 0
    steps: list[list[list[str]]] = field(default_factory=list)
    warned: dict[str, str] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)

    def saw(self, calls: list[tuple[str, Outcome]]) -> None:
        """The calls of one step: command (as `named` says it) and what came out."""
        self.number += 1
        calls = [(squeezed(command), outcome.text) for command, outcome in calls if not _is_nobodys(outcome)]
        marked = [[command, fingerprint(command, output)] for command, output in calls]
        self.steps = [*self.steps, marked][-2 * self.window :]
        for command, mark in marked:
            if self.warned.get(command, mark) != mark:  # it moves
                del self.warned[command]
        self.refused = {command: until for command, until in self.refused.items() if until > self.number}

    def found(self) -> Alarm | None:
        """What has to be said now, once: what it was found by is forgotten."""
        for command, times in self.asked.items():
            if times >= 2:
                self.asked[command] = 0
                return self._alarm(CHANGE, command, "it was asked for again after it had been refused")
        for command, mark, times, within in self._counted():
            self._forget(mark)
            if self.warned.get(command) == mark:
                self.refused[command] = self.number + REFUSED_WINDOWS * self.window
                self.asked[command] = 0
                return self._alarm(REFUSE, command, f"{times} times more after it had been named")
            self.warned[command] = mark
            return self._alarm(NUDGE, command, f"{times} times in {within} steps with the same output")
        return None

    def refuses(self, command: str) -> bool:
        """Whether this call is not to be run. Asking counts."""
        command = squeezed(command)
        if command not in self.refused:
            return False
        self.asked[command] = self.asked.get(command, 0) + 1
        return True

    def dump(self) -> dict:
        """Of this moment: it is written down before anything changes it."""
        return {name: value for name, value in vars(self).items() if name not in ("limit", "window")}

    def _counted(self) -> list[tuple[str, str, int, int]]:
        """Commands that came too often: command, fingerprint, how often, in how many steps."""
        found = []
        commands = {mark: command for calls in self.steps for command, mark in calls}
        marks = [{mark for _, mark in calls} for calls in self.steps]
        for mark, command in commands.items():
            factor = 2 if _WAITS.search(command) else 1
            within = factor * self.window
            limit = factor * (self.limit - (self.warned.get(command) == mark and self.limit > 2))
            times = sum(mark in seen for seen in marks[-within:])
            if times >= limit:
                found.append((command, mark, times, within))
        return found

    def _forget(self, mark: str) -> None:
        self.steps = [[call for call in calls if call[1] != mark] for calls in self.steps]

    def _alarm(self, rung: str, command: str, how: str) -> Alarm:
        return Alarm(rung, f"{how}: {command[:NAMED]}", command.split(" ", 1)[0])


def _is_nobodys(outcome: Outcome) -> bool:
    """Not run by us, or no verdict because the provider failed: nothing that the Worker repeats."""
    return outcome.text == REFUSAL or (outcome.reason or "").startswith("no verdict")


def named(tool: str, arguments: dict | None, raw: str) -> str:
    """A call as one text, the same for the same call: `execute_shell make`, `read_file {"path": "x"}`."""
    if arguments is None:
        return f"{tool} {raw}"
    if tool == "execute_shell" and isinstance(arguments.get("command"), str):
        return f"{tool} {arguments['command']}"
    return f"{tool} {json.dumps(arguments, sort_keys=True)}"


def squeezed(command: str) -> str:
    """On one line, and short: what is longer is told apart by its hash."""
    text = clean(" ".join(command.split()))
    return text if len(text) <= NAMED else f"{text[:NAMED]} #{_hash(text)}"


def fingerprint(command: str, output: str) -> str:
    if any(word in output for word in _IN_NOISE):
        output = _NOISE.sub("", output)
    return _hash(f"{command}\0{output}")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]
