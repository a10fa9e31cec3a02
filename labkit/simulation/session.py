"""HOST: one simulated session: the real harness in this process, under a virtual clock."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
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
from labkit.simulation.recorded import Recorded
from labkit.simulation.script import Script
from labkit.simulation.surroundings import Incidents, Link, Shell
from labkit.simulation.virtual import EPOCH, TICK, VirtualLoop, VirtualTime
from labkit.simulation.wire import Meter

MEMORY = Path("/dev/shm")  # a tmpfs: fsync costs nothing there
ROOM = "free some space there (`df -h` shows it), or set TMPDIR to another disk, then repeat"
LEAST_FREE = 1 << 30  # bytes; a container may have a very small one
SHOWN_AS = "/sandbox"
BALLAST = 4096  # bytes a file: this disk is full when the script says so


@dataclass(frozen=True)
class Result:
    """What came of a session. summary: as in summary.json. folder: the sandbox; gone unless it was asked for.

    simulated_seconds: from start to seal, outages included. phases: name, second of its beginning, steps.
    faults: how often each kind was met. billed_usd: what the provider really charged.
    events_sha256: over every row of execution_logs, id and time included.
    """

    summary: dict[str, Any]
    seed: int
    provider: str
    simulated_seconds: float
    wall_seconds: float
    phases: list[dict[str, Any]]
    faults: dict[str, int]
    billed_usd: float
    events_sha256: str
    replayed: dict[str, int] = field(default_factory=dict)
    folder: Path | None = None

    def as_dict(self) -> dict[str, Any]:
        """The same for one seed but for wall_seconds."""
        names = ("seed", "provider", "phases", "faults", "billed_usd", "events_sha256", "replayed")
        shown = {name: getattr(self, name) for name in names}
        shown |= {"simulated_seconds": self.simulated_seconds, "wall_seconds": self.wall_seconds}
        return {**{key: value for key, value in self.summary.items() if key != "sha256"}, **shown}

    def query(self, sql: str, *values: object) -> list[tuple]:
        """Rows of the sealed run.db; the session must have been given a folder."""
        if self.folder is None:
            raise ValueError("simulate(..., folder=PATH) keeps the record")
        return _query(self.folder / "telemetry" / "sealed" / "run.db", sql, *values)


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
    with _place(folder, resume) as sandbox:
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
        self.virtual.wall_offset = _seconds_recorded(wanted.paths.primary_db)
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
        known = {name: value for name, value in self._facts().items() if name in ("minutes", "budget_usd")}
        chosen = {**default_settings(), **known, **self.script.settings, **settings}
        chosen |= {"minutes": minutes} if minutes is not None else {}
        own = {
            "sandbox": str(self.sandbox),
            "tool_user": None,
            "backup_command": ["simulated"],
            "token": "simulated-token",
            "nonce": f"{self.seed:032x}",
            "run_id": f"simulated-{self.script.name}-{self.seed}",
            "gateway_url": "http://simulated.invalid",
        }
        try:
            return from_dict({**chosen, **own}, "the simulation's settings")
        except SettingsError as error:
            raise LabError(str(error), "docs/interfaces.md lists the keys of run.json", USAGE) from error

    def _facts(self) -> dict[str, Any]:
        return self.recorded.facts if self.recorded else {}

    def _provider(self, wanted: Any) -> Provider:
        prices = self.script.prices
        meter = Meter(
            wanted.price_input_per_mtok if prices.input_per_mtok is None else prices.input_per_mtok,
            wanted.price_output_per_mtok if prices.output_per_mtok is None else prices.output_per_mtok,
            prices.cached_reads,
        )
        place = str(self.sandbox)
        return Provider(self.script, self.chance, self.virtual, self.agents, meter, SHOWN_AS, place)

    def _world(self) -> World:
        shell = Shell(self.script, self.chance, self.virtual, self.recorded)
        return World(
            now=self.virtual.now,
            wait=self.virtual.wait,
            tick=TICK,
            stamp=self.virtual.stamp,
            mark=self.chance.mark,
            disk_percent=lambda _: self.incidents.disk,
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
            phases=_phases(database),
            faults=dict(sorted(self.provider.met.items())),
            billed_usd=round(self.provider.billed, 6),
            events_sha256=_events_hash(database),
            replayed=replayed,
            folder=folder,
        )


@functools.cache
def default_settings() -> dict[str, Any]:
    """run.json as the shipped inventory makes it, without the token."""
    lab = config.load(config.SHIPPED_INVENTORY)
    return plan.harness_settings(lab, plan.make(lab))


@contextlib.contextmanager
def _place(folder: Path | None, resume: bool) -> Iterator[Path]:
    """The sandbox: the folder asked for, else one in memory or the temporary folder that goes at the end."""
    if folder is not None:
        yield Path(folder).absolute() if resume else _fresh(Path(folder).absolute())
        return
    with tempfile.TemporaryDirectory(prefix="lab-simulate-", dir=temporary()) as made:
        yield Path(made) / "sandbox"


def temporary() -> str | None:
    """Memory where there is room in it; None: the usual temporary folder."""
    usable = MEMORY.is_dir() and os.access(MEMORY, os.W_OK)
    return str(MEMORY) if usable and shutil.disk_usage(MEMORY).free > LEAST_FREE else None


def _fresh(folder: Path) -> Path:
    if folder.is_dir() and any(folder.iterdir()):
        raise LabError(f"{folder} is not empty", "name a new folder: a simulation overwrites nothing", USAGE)
    return folder


def keep(result: Result, target: Path) -> None:
    """Move what a session left to `target`, in the shape of a collected run, so that `lab query` reads it.

    Whole or not at all: where the disk takes only a part of it, `target` is gone again.
    """
    sandbox = result.folder
    if sandbox is None:
        raise ValueError("the session had no folder of its own")
    target.mkdir(parents=True, exist_ok=True)
    try:
        _move(sandbox, target)
    except OSError:
        shutil.rmtree(target, ignore_errors=True)
        raise


def _move(sandbox: Path, target: Path) -> None:
    moves = {
        "telemetry/sealed/run.db": "run.db",
        "mirror/run.db": "mirror.db",
        "telemetry/summary.json": "summary.json",
        "telemetry/outputs": "outputs",
        "workspace": "workspace",
    }
    for source, name in moves.items():
        if (sandbox / source).exists():
            shutil.move(sandbox / source, target / name)


def _query(database: Path, sql: str, *values: object) -> list[tuple]:
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
        return db.execute(sql, values).fetchall()


def _seconds_recorded(database: Path) -> float:
    """To the last row, by the wall clock: a resumed session's time stamps go on from there."""
    if not database.exists():
        return 0.0
    last = _query(database, "SELECT strftime('%s', MAX(timestamp)) FROM execution_logs")[0][0]
    return max(0.0, float(last) - EPOCH) if last else 0.0


def _phases(database: Path) -> list[dict[str, Any]]:
    begins = (
        "SELECT phase, MIN(elapsed_seconds) FROM execution_logs "
        "WHERE event_type = 'PHASE_STARTED' GROUP BY phase"
    )
    began = dict(_query(database, begins))
    # A step in which the phase changes counts where it began.
    sql = (
        "SELECT phase, COUNT(*) FROM (SELECT phase, MIN(id) AS first FROM execution_logs "
        "WHERE step_number > 0 GROUP BY step_number) GROUP BY phase ORDER BY MIN(first)"
    )
    counted = _query(database, sql)
    return [{"name": name, "began_at": began.get(name, 0.0), "steps": steps} for name, steps in counted]


def _events_hash(database: Path) -> str:
    digest = hashlib.sha256()
    for row in _query(database, "SELECT * FROM execution_logs ORDER BY id"):
        digest.update(repr(row).encode("utf-8", errors="replace"))
    return digest.hexdigest()
