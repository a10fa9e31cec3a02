"""HOST: one simulated session: the real harness in this process, under a virtual clock."""

from __future__ import annotations

import functools
import re
import threading
import time
from pathlib import Path
from typing import Any

from harness import __main__ as harness
from harness.errors import HarnessError
from harness.settings import SettingsError, from_dict
from harness.world import World
from labkit import config, plan
from labkit.errors import NOT_READY, USAGE, LabError
from labkit.simulation.agents import Agents
from labkit.simulation.chance import Chance
from labkit.simulation.provider import Provider
from labkit.simulation.replay import Recorded
from labkit.simulation.result import Result, events_hash, phases, seconds_recorded
from labkit.simulation.sandbox import place
from labkit.simulation.script import Script
from labkit.simulation.surroundings import FULL, Incidents, Link, Shell
from labkit.simulation.virtual import TICK, VirtualLoop, VirtualTime
from labkit.simulation.wire import Meter

ROOM = "free some space there (`df -h` shows it), or set TMPDIR to another disk, then repeat"
SHOWN_AS = "/sandbox"
_UNNAMEABLE = re.compile(r"[^\w.-]+", re.ASCII)  # of a run_id, which becomes names of files
BALLAST = 4096  # bytes a file: this disk is full when the script says so


def simulate(
    script: Script | str | Path = "honest",
    *,
    seed: int = 0,
    minutes: float | None = None,
    settings: dict[str, Any] | None = None,
    replay: Path | None = None,
    folder: Path | None = None,
    resume: bool = False,
    stop: threading.Event | None = None,
) -> Result:
    """Run one whole session. script: a Script, the name of a shipped one, or a file.

    minutes: its length; default: what was recorded, else what the settings say. settings: keys of run.json,
    over the shipped ones. replay: a run.db whose replies and outputs are played. folder: where the sandbox is
    made and stays. resume: go on with what a killed session left there; script and seed as before.
    stop: set it to end the session as SIGTERM does. Raises LabError (usage).
    """
    script = script if isinstance(script, Script) else Script.load(script)
    with place(folder, resume) as sandbox:
        return _Session(script, seed, sandbox, replay, stop or threading.Event()).run(
            minutes, settings or {}, folder
        )


class _Session:
    """The parts of one simulation, wired."""

    def __init__(
        self, script: Script, seed: int, sandbox: Path, replay: Path | None, stop: threading.Event
    ) -> None:
        self.script, self.seed, self.sandbox, self.stop = script, seed, sandbox, stop
        self.virtual, self.chance = VirtualTime(), Chance(seed)
        self.recorded = Recorded(replay, self.chance) if replay else None
        self.agents = self.recorded or Agents(script, self.chance)
        self.loops: list[VirtualLoop] = []
        self.backups = 0

    def run(self, minutes: float | None, settings: dict[str, Any], folder: Path | None) -> Result:
        wanted = self._settings(minutes, settings)
        self.link = Link(wanted)
        self.link.begin(self.virtual, self.recorded)
        self.provider = self._provider(wanted)
        self.incidents = Incidents(self.script, self.virtual, self.link, self.provider, self.stop)
        self.virtual.wall_offset = seconds_recorded(wanted.paths.primary_db)
        began = time.monotonic()
        try:
            summary = harness.run(wanted, self.stop, self._world())
        except HarnessError as error:
            raise LabError(f"the simulated session failed: {error}", ROOM, NOT_READY) from error
        finally:
            for loop in self.loops:
                loop.close()
        return self._result(summary, time.monotonic() - began, folder)

    def _settings(self, minutes: float | None, settings: dict[str, Any]) -> Any:
        known = self.recorded.facts if self.recorded else {}
        chosen = {**default_settings(), **known, **self.script.settings, **settings}
        chosen |= {"minutes": minutes} if minutes is not None else {}
        own = {
            "sandbox": str(self.sandbox),
            "tool_user": None,
            "backup_command": ["simulated"],
            "token": "simulated-token",
            "nonce": f"{self.seed % (1 << 128):032x}",
            "run_id": f"simulated-{_UNNAMEABLE.sub('-', self.script.name)}-{self.seed}",
            "gateway_url": "http://simulated.invalid",
        }
        try:
            return from_dict({**chosen, **own}, "the simulation's settings")
        except SettingsError as error:
            raise LabError(str(error), "docs/interfaces.md lists the keys of run.json", USAGE) from error

    def _provider(self, wanted: Any) -> Provider:
        prices = self.script.prices
        meter = Meter(
            wanted.price_input_per_mtok if prices.input_per_mtok is None else prices.input_per_mtok,
            wanted.price_output_per_mtok if prices.output_per_mtok is None else prices.output_per_mtok,
            prices.cached_reads,
        )
        place = str(self.sandbox)
        return Provider(
            self.script, self.chance, self.virtual, self.agents, meter, SHOWN_AS, place, self._cut
        )

    def _cut(self) -> None:
        """As the recorded session was, in the middle of a call."""
        self.link.ask_the_rest()
        self.stop.set()

    def _world(self) -> World:
        shell = Shell(self.script, self.chance, self.virtual, self.recorded)
        return World(
            now=self.virtual.now,
            wait=self.virtual.wait,
            tick=TICK,
            stamp=self.virtual.stamp,
            mark=self.chance.mark,
            disk_percent=lambda _: FULL if self.link.found_full() else self.incidents.disk,
            boot_id=lambda: "simulated",
            event_loop=self._loop,
            shown_as=SHOWN_AS,
            ballast_bytes=BALLAST,
            transport=self.provider,
            link=lambda _: self.link,
            command=shell.run,
            page=shell.page,
            backup=self._back_up,
        )

    def _loop(self) -> VirtualLoop:
        self.loops.append(VirtualLoop(self.virtual))
        return self.loops[-1]

    def _back_up(self, command: list[str]) -> tuple[str, bool]:
        self.backups += 1
        return f"{SHOWN_AS}/backups/gen-{self.backups:05d} (simulated: nothing was copied)", True

    def _result(self, summary: dict, wall: float, folder: Path | None) -> Result:
        database = self.sandbox / "telemetry" / "sealed" / "run.db"
        if not database.exists():
            raise LabError(
                f"the record of the simulated session has no place in {self.sandbox}", ROOM, NOT_READY
            )
        replayed = {"attempts": self.recorded.total, "played": self.recorded.played} if self.recorded else {}
        return Result(
            summary=summary,
            seed=self.seed,
            provider=self.script.name,
            simulated_seconds=round(self.virtual.now(), 3),
            wall_seconds=round(wall, 3),
            phases=phases(database),
            faults=dict(sorted(self.provider.met.items())),
            billed_usd=round(self.provider.billed, 6),
            events_sha256=events_hash(database),
            replayed=replayed,
            folder=folder,
        )


@functools.cache
def default_settings() -> dict[str, Any]:
    """run.json as the shipped inventory makes it, without the token."""
    lab = config.load(config.SHIPPED_INVENTORY)
    return plan.harness_settings(lab, plan.make(lab))
