"""HOST: the run that is in the guest: its start, its folder on the host."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from labkit import boot, network_gate, playbooks, presence, snapshot, state
from labkit.config import Lab
from labkit.errors import UNREACHABLE, LabError
from labkit.gateway import awake, keys, process
from labkit.gateway.events import EventTail, run_summary
from labkit.gateway.files import read_lines
from labkit.gateway.views import EVENTS
from labkit.guest import Hypervisor
from labkit.harness_archive import build
from labkit.plan import Plan, data_use, gateway_config, harness_settings, helpers, hook
from labkit.progress import Progress
from labkit.ssh import Shell

# Ended hard: it may be frozen, and a run that goes on finds its checkpoint.
END_HARNESS = "systemctl kill -s KILL lab-harness.service 2>/dev/null; systemctl stop lab-harness.service"
BOOT_SECONDS = 300  # an emulated guest takes about 70


def place(lab: Lab) -> snapshot.Place:
    """The lab's guest, as the snapshot sees it."""
    return snapshot.Place(lab.name, lab.dir, lab.address)


def refuse_uncollected(lab: Lab, discard: bool, thrown_away_by: str = "--discard") -> None:
    """LabError while a run that nobody collected is in the guest, unless it may be thrown away.

    thrown_away_by: what a person types for that.
    """
    throw = f"`{thrown_away_by}` throws it away"
    known = state.read(lab.dir)
    if not known.get("run") or known.get("collected") or discard:
        return
    said = f"run {known['run']} is in the guest '{lab.name}' and was not collected"
    folder = lab.gateway_dir / known["run"]
    if run_summary(EventTail(folder).rows()):
        raise LabError(said, f"`lab collect` brings it to runs/; {throw}")
    if process.alive(folder):
        if (word := presence.state_of(lab.name)) in ("off", "crashed", "paused"):
            raise LabError(
                f"{said}: its session is not over, and the guest is {word}",
                f"`lab run --resume last` goes on, `lab collect` reads its disks; {throw}",
            )
        raise LabError(
            f"{said}: its session is still running",
            f"`lab watch` shows it, `lab finish` asks it to end; {throw}",
        )
    raise LabError(
        f"{said}: it may not be over",
        f"`lab run --resume last` goes on, `lab collect --stop` brings what there is to runs/; {throw}",
    )


def begin(
    lab: Lab, wanted: Plan, keep: bool, progress: Progress, asked: dict[str, Any] | None = None
) -> Path:
    """Revert (unless `keep`), start the gateway, install and start the harness. Returns the gateway's folder.

    asked: what else of the start belongs to the run's record (options.json). Raises LabError before anything
    changes where a key is missing or there is no verified snapshot.
    """
    where = place(lab)
    snapshot.require_verified(where)
    token = secrets.token_urlsafe(32)
    gateway = gateway_config(lab, wanted, token)
    keys.provider_key(gateway)
    for warning in data_use(lab, wanted):
        progress.say(f"WARNING: {warning}")
    with progress.step("building the harness archive"):
        archive = build(lab)
    stop_gateways(lab)  # of a run that was thrown away: it would hold the port
    put = network_gate.switch if keep else network_gate.at_next_start
    put(lab, wanted.network)  # before the guest's first instruction
    with progress.step("going on with the guest as it is" if keep else "reverting to the snapshot"):
        gateway = dataclasses.replace(gateway, boot_id=_bring_up(where, keep, progress))
    progress.say(network_gate.SAID[wanted.network])
    if wanted.network == network_gate.SEALED:
        with progress.step("trying to reach this host from the sealed guest"):
            network_gate.prove_sealed(lab)
    run_dir = lab.gateway_dir / wanted.run_id
    run_dir.mkdir(parents=True, mode=0o700)
    settings = harness_settings(lab, wanted)
    state.write_json(run_dir / "run.json", settings)
    state.write_json(run_dir / "options.json", {**(asked or {}), "archive": str(archive)})
    state.update(lab.dir, run=wanted.run_id, collected=False, dirty=True)
    with _forgotten_unless_begun(lab, run_dir, keep):
        with progress.step("starting the gateway"):
            pid = process.start(run_dir, gateway, hook(lab), helpers(lab, wanted.run_id))
            progress.say(awake.keep(pid, wanted.run_id))
        with progress.step("installing the harness and starting the session"):
            start_harness(lab, archive, {**settings, "token": token}, progress)
    return run_dir


def start_harness(lab: Lab, archive: Path, settings: dict[str, Any], progress: Progress) -> None:
    """Ship the archive into the running guest and start its service. settings: run.json, token included."""
    playbooks.run(
        "run", lab, progress.detail, lab_harness_archive=str(archive), lab_harness_settings=settings
    )


@contextlib.contextmanager
def _forgotten_unless_begun(lab: Lab, run_dir: Path, keep: bool) -> Iterator[None]:
    """A start that failed must not stand in the way of the next one: without an event there is no run.

    Its gateway's folder stays, with a note. The guest goes off (unless kept), so that a harness that
    started late does not go on without its gateway.
    """
    try:
        yield
    except BaseException as error:
        if next(read_lines(run_dir / EVENTS), None) is None:
            with contextlib.suppress(LabError):  # the first error is the one to be read
                process.stop(run_dir)
            state.write_json(run_dir / "not-started.json", {"reason": str(error) or type(error).__name__})
            state.update(lab.dir, run=None, collected=None)
            if not keep:
                with contextlib.suppress(LabError):
                    snapshot.switch_off(place(lab))
        raise


def archive_of(run_dir: Path) -> Path | None:
    """The harness's archive that the run began with, or None where it is gone (or the run is older)."""
    try:
        archive = Path(json.loads((run_dir / "options.json").read_text())["archive"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return archive if archive.is_file() else None


def stop_gateways(lab: Lab) -> None:
    """End every gateway of this lab that still runs."""
    for folder in sorted(lab.gateway_dir.glob("*")):
        process.stop(folder)


def current(lab: Lab) -> Path:
    """The gateway's folder of the run that is in the guest; LabError when there is none."""
    run_id = state.read(lab.dir).get("run")
    if not run_id:
        raise LabError(
            f"no run is in the guest '{lab.name}'", "`lab run` starts one; `lab runs` lists collected ones"
        )
    return lab.gateway_dir / run_id


def watchable(lab: Lab) -> Path:
    """Like `current`; LabError when the host's folder of that run is gone, so that nothing can be shown."""
    folder = current(lab)
    if not (folder / "gateway.json").is_file():
        raise LabError(
            f"the gateway's folder {folder} of run {folder.name} is missing or empty",
            "`lab collect --stop` brings what the guest holds",
        )
    return folder


def _bring_up(where: snapshot.Place, keep: bool, progress: Progress) -> str:
    """Returns the guest's boot id; empty where it tells none."""
    if not keep:
        receipt = snapshot.revert(where)
        receipt.demand()
        progress.say(receipt.line())
        return receipt.boot_id
    with Hypervisor() as hypervisor:
        found = hypervisor.state(where.name)
        if found == "absent":
            raise LabError(f"there is no guest named '{where.name}'", "`lab up` builds it", UNREACHABLE)
        if found == "paused":
            raise LabError(f"the guest '{where.name}' is paused", "`lab status` says why", UNREACHABLE)
        hypervisor.start_network(where.name)
        hypervisor.start(where.name)
        boot.wait(hypervisor, where.name, where.address)
    with Shell(where.address, where.keys_dir, seconds=BOOT_SECONDS) as shell:
        shell.run(END_HARNESS)  # of a run that was thrown away: the new one could not start beside it
        return boot.named(shell.run(f"cat {boot.BOOT_ID}")[1])
