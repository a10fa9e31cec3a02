"""HOST: `lab run --resume`: goes on with the run that is in the guest after guest, gateway or host went down.

The guest's disks are never touched: it boots from the overlays it had. The harness goes on from its own
checkpoint, the gateway with the ledger and the money it had.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit import boot, drift, network_gate, ownership, session, snapshot, state
from labkit.config import Lab
from labkit.disks import FIXED, WRITABLE
from labkit.errors import UNREACHABLE, USAGE, LabError
from labkit.gateway import awake, process
from labkit.gateway.config import GatewayConfig, token_hash
from labkit.gateway.events import EventTail, run_summary
from labkit.gateway.views import EVENTS, REQUESTS
from labkit.guest import Hypervisor
from labkit.harness_archive import build
from labkit.libvirt_connection import URI
from labkit.plan import helpers, hook
from labkit.progress import Progress
from labkit.ssh import Shell

LOOK_SECONDS = 60
ANSWER_SECONDS = 10.0  # a gateway on a busy host; one that was stopped or hangs takes none
GIVE_UP = "`lab collect --stop` brings home what there is"  # without --stop a run that may go on is refused

# Asked of the guest in one go: does the service run, whose record is there, which token and boot has it.
LOOK = """
import hashlib, json, sqlite3, subprocess, sys
telemetry, found = sys.argv[1], {"run": None, "sealed": False, "token_sha256": None, "boot_id": ""}
active = subprocess.run(["systemctl", "is-active", "--quiet", "lab-harness.service"])
found["active"] = active.returncode == 0
try:
    found["boot_id"] = open("/proc/sys/kernel/random/boot_id").read().strip()
except OSError:
    pass  # then it is not known, and the ledger says so
try:
    settings = json.load(open("/etc/lab-harness/run.json"))
    found["token_sha256"] = hashlib.sha256(settings["token"].encode()).hexdigest()
    found["run"] = settings["run_id"]
    database = sqlite3.connect("file:" + telemetry + "/run.db?mode=ro", uri=True, timeout=20)
    record = dict(database.execute("SELECT key, value FROM session_state"))
    found["run"] = record.get("run_id", found["run"])
    found["sealed"] = "summary" in record
except (OSError, ValueError, KeyError, sqlite3.Error) as error:
    found["problem"] = str(error)
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Held:
    """What the guest said. run: whose record or settings it has; None where it has none."""

    active: bool
    run: str | None
    sealed: bool
    token_sha256: str | None
    boot_id: str = ""


def resume(lab: Lab, which: str, progress: Progress, by_person: bool = True) -> Path:
    """Go on with run `which` (a run_id, its beginning, or `last`). Returns the gateway's folder.

    by_person: then the wall limit does not count how long the run lay still; at a repair by itself it does.
    A session that still runs is left alone and keeps its token; only its gateway is started. Raises LabError:
    the run is another one, sealed, collected, or its overlays are gone.
    """
    folder = demand_unfinished(lab, which)
    config = GatewayConfig.load(folder)
    with progress.step("seeing to the guest, from the disks it has"):
        _demand_guest(lab)
        held = _look(lab)
    demand_same(folder.name, held, lab.name)
    if held.active:
        demand_token(folder.name, held, config)
        announced = config.boot_id in ("", held.boot_id)
        if announced and process.alive(folder) and process.answers(config, ANSWER_SECONDS):
            progress.say("guest, session and gateway are at work: there was nothing to resume")
            return folder
    if process.alive(folder):
        progress.say("ending the gateway that is there, to start it anew on its record")
    process.stop(folder)
    token = None if held.active else secrets.token_urlsafe(32)
    _start_gateway(lab, folder, _continued(folder, config, held, token, by_person), progress)
    if token:
        _start_session(lab, folder, token, progress)
    return folder


def demand_unfinished(lab: Lab, which: str) -> Path:
    """The gateway's folder of the run in the guest, if it is `which` and not over; LabError otherwise."""
    folder, known = session.current(lab), state.read(lab.dir)
    if which != "last" and not (which and folder.name.startswith(which)):
        raise LabError(
            f"run {which} is not in the guest '{lab.name}': run {folder.name} is",
            f"`lab run --resume {folder.name}` goes on with that one; `lab runs` lists collected ones",
            USAGE,
        )
    if known.get("collected"):
        raise LabError(f"run {folder.name} was collected: it is over", "`lab run` starts another one")
    if summary := run_summary(EventTail(folder).rows()):
        reason = summary.get("stop_reason", "no reason given")
        raise LabError(f"run {folder.name} is sealed ({reason}): it is over", "`lab collect` brings it home")
    if not (folder / "run.json").is_file() or not (folder / "gateway.json").is_file():
        raise LabError(f"{folder} lacks run.json or gateway.json: the run can't go on", GIVE_UP)
    return folder


def demand_same(run_id: str, held: Held, name: str) -> None:
    """LabError when the guest holds another run, or this one is over there."""
    if held.run not in (None, run_id):
        raise LabError(
            f"the guest '{name}' holds run {held.run}, not {run_id}",
            "`lab status` shows what this host knows; `lab collect --stop` brings home what the guest holds",
        )
    if held.sealed and not held.active:
        raise LabError(
            f"run {run_id} is sealed in the guest: it is over", "`lab collect --stop` brings it home"
        )


def demand_token(run_id: str, held: Held, config: GatewayConfig) -> None:
    """LabError when a session that runs has a token that the gateway would not take."""
    if held.token_sha256 != config.token_sha256:
        raise LabError(
            f"the session of run {run_id} runs with a token that its gateway does not know",
            "`lab ssh -- systemctl stop lab-harness`, then repeat",
        )


def _demand_guest(lab: Lab) -> None:
    """The guest runs, from the overlays it has; LabError where that can't be."""
    where = session.place(lab)
    with Hypervisor() as hypervisor:
        ownership.refuse_foreign(hypervisor, lab.name, lab.dir)
        found = hypervisor.state(lab.name)
        if found == "paused":
            cure = f"free space if this host's disk is full, `virsh -c {URI} resume {lab.name}`, then repeat"
            raise LabError(f"the guest '{lab.name}' is paused", cure, UNREACHABLE)
        if found != "running":
            _define_as_it_was(where, hypervisor, found)
            demand_overlays(where)
        network_gate.switch(lab, state.read(lab.dir).get("network", network_gate.OPEN))
        hypervisor.start_network(lab.name)
        hypervisor.start(lab.name)
        boot.wait(hypervisor, lab.name, lab.address)


def _define_as_it_was(where: snapshot.Place, hypervisor: Hypervisor, found: str) -> None:
    """Guest and network may be removed or edited by now, and `lab up` would refuse because of the run."""
    if "definitions" in (snapshot.manifest(where) or {}):
        drift.redefine(where, hypervisor)
    elif found == "absent":
        raise LabError(f"the guest '{where.name}' is no longer defined", GIVE_UP, UNREACHABLE)


def demand_overlays(where: snapshot.Place) -> None:
    """LabError when a disk the guest would boot from is gone, or stands on nothing."""
    wanted = [where.disks_dir / file for file in (*WRITABLE.values(), *FIXED)]
    wanted += [where.set_dir / file for file in WRITABLE.values()]
    missing = [str(path) for path in wanted if not path.is_file()]
    if missing:
        raise LabError(f"the guest '{where.name}' can't boot: {', '.join(missing)} is gone", GIVE_UP)


def _look(lab: Lab) -> Held:
    telemetry = shlex.quote(f"{lab.guest['lab_sandbox']}/telemetry")
    with Shell(lab.address, lab.keys_dir, seconds=session.BOOT_SECONDS) as shell:
        _, said = shell.run(f"python3 -c {shlex.quote(LOOK)} {telemetry}", LOOK_SECONDS)
    return held_from(said, lab.name)


def held_from(said: str, name: str) -> Held:
    """The guest's answer, read as carefully as anything that a guest says."""
    try:
        answer = json.loads(said.strip().splitlines()[-1])
        return Held(**{field.name: answer[field.name] for field in dataclasses.fields(Held)})
    except (ValueError, LookupError, TypeError) as error:
        raise LabError(
            f"the guest '{name}' does not say what it holds: {said.strip()[-200:]}", GIVE_UP, UNREACHABLE
        ) from error


def _continued(
    folder: Path, config: GatewayConfig, held: Held, token: str | None, by_person: bool = True
) -> GatewayConfig:
    """The same settings, and the guest's boot of now; a person forgives the run its time of standstill."""
    stood_still = max(0.0, time.time() - _last_sign(folder, config)) if by_person else 0.0
    downtime = round(config.downtime_seconds + stood_still, 1)
    changes: dict[str, Any] = {"downtime_seconds": downtime, "boot_id": boot.named(held.boot_id)}
    if token:
        changes["token_sha256"] = token_hash(token)
    return dataclasses.replace(config, **changes)


def _last_sign(folder: Path, config: GatewayConfig) -> float:
    """When the gateway last wrote anything of the run (seconds since the epoch)."""
    written = [folder / name for name in (EVENTS, REQUESTS)]
    return max([config.started, *(path.stat().st_mtime for path in written if path.is_file())])


def _start_gateway(lab: Lab, folder: Path, config: GatewayConfig, progress: Progress) -> None:
    with progress.step("starting the gateway on its record"):
        pid = process.start(folder, config, hook(lab), helpers(lab, folder.name))
        progress.say(awake.keep(pid, folder.name))


def _start_session(lab: Lab, folder: Path, token: str, progress: Progress) -> None:
    settings = json.loads((folder / "run.json").read_text())
    archive = session.archive_of(folder)
    if archive is None:
        progress.say("the harness this run began with is gone: it goes on with today's")
        archive = build(lab)
    with progress.step("starting the session from its checkpoint"):
        session.start_harness(lab, archive, {**settings, "token": token}, progress)
