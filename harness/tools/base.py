"""GUEST: what every tool is given (Desk) and gives back (Outcome)."""

from __future__ import annotations

import math
import os
import pwd
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from harness.clock import Clock
from harness.inspector import Inspector
from harness.inventory import Inventory
from harness.phases import Phase
from harness.settings import Settings
from harness.telemetry import events
from harness.telemetry.recorder import Recorder
from harness.tools.jobs import Jobs
from harness.tools.kept_outputs import KeptOutputs
from harness.world import REAL, World


@dataclass(frozen=True)
class Outcome:
    """What the Worker gets to read, and what the gate made of it.

    status: BYPASS (nothing external in it), ALLOW or BLOCK (the Inspector decided; reason says why).
    """

    text: str
    status: str = events.BYPASS
    reason: str | None = None


@dataclass
class Desk:
    """The parts of the run that tools work with. `phase` and `step` are set by the loop."""

    settings: Settings
    recorder: Recorder
    clock: Clock
    inspector: Inspector
    stop: threading.Event
    phase: Phase
    step: int = 0
    call: int = 0  # of this step, from 1: names the output file
    inventory: Inventory | None = None  # None: the run could not begin
    world: World = REAL
    patience: Callable[[], float] = lambda: math.inf  # seconds that what runs now may still take
    kept: KeptOutputs = field(init=False)
    jobs: Jobs = field(default_factory=Jobs)
    said: set[str] = field(default_factory=set)
    closed: dict[str, int] = field(default_factory=dict)  # tool to the step from which it is open again

    def __post_init__(self) -> None:
        self.kept = KeptOutputs(self.settings.paths.outputs)

    def offered(self) -> tuple[str, ...]:
        """The phase's tools but those that are closed for some steps."""
        return tuple(name for name in self.phase.tools if self.closed.get(name, 0) <= self.step)

    def close(self, tool: str, steps: int) -> None:
        """Never the one that writes what the phase is to leave behind."""
        if tool != self.phase.written_with:
            self.closed[tool] = self.step + steps

    def say_once(self, what: str) -> None:
        """A GUARD event, once a run of this process."""
        if what not in self.said:
            self.said.add(what)
            self.recorder.event(events.GUARD, guard_reason=what)

    def owner(self) -> tuple[int, int] | None:
        """uid and gid that files and commands belong to; None: stay as we are."""
        return user_ids(self.settings.tool_user)


def user_ids(name: str | None) -> tuple[int, int] | None:
    if name is None:
        return None
    entry = pwd.getpwnam(name)
    return entry.pw_uid, entry.pw_gid


def groups_of(name: str) -> list[int]:
    return os.getgrouplist(name, pwd.getpwnam(name).pw_gid)


def schema(name: str, description: str, **properties: dict) -> dict:
    """An OpenAI function schema. A property is required unless it carries 'optional': True."""
    required = [key for key, value in properties.items() if not value.get("optional")]
    shown = {key: {k: v for k, v in value.items() if k != "optional"} for key, value in properties.items()}
    parameters = {"type": "object", "properties": shown, "required": required, "additionalProperties": False}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }
