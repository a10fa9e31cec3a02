"""HOST: the truth at this moment: guest, snapshot, run, gateway; advice.py puts it into words."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from labkit import drift, fingerprint, leftovers, lock, network_gate, session, snapshot, state
from labkit.config import Lab
from labkit.errors import LabError
from labkit.gateway import commands, process, watchdog
from labkit.gateway.events import EventTail
from labkit.gateway.page import access
from labkit.gateway.progress import Progress
from labkit.gateway.views import EVENTS
from labkit.guest import Hypervisor

T = TypeVar("T")


def describe(lab: Lab) -> dict[str, Any]:
    """guest: absent, off, running, paused, crashed, unknown. io_error: one paused it. snapshot: none,
    not verified, verified, stale, damaged. at_work: the command that holds the lab (verb, pid, since), or
    None. network: open, sealed, changed by hand, absent
    (with the guest), unknown. drift: what somebody changed behind the kit's back;
    not looked for while a command is at work. problems: sentences about what could not be read.

    run: the run_id of the session in the guest, or None; with phase, step, elapsed_seconds and
    cost_usd as the gateway heard them last. Never fails for what is broken: it is what is asked for.
    """
    problems: list[str] = []
    holder = lock.holder(lab.state_dir, lab.name)
    known = _unless_broken(lambda: state.read(lab.dir), problems, {})
    guest, io_error = _unless_broken(lambda: _guest(lab), problems, ("unknown", False))
    word, taken_at = _unless_broken(lambda: _snapshot(lab, known), problems, ("damaged", None))
    if not holder and (orphans := leftovers.count(lab.dir)):
        problems.append(
            f"a command that was killed left {orphans} processes at work: repeat it, which ends them first"
        )
    return {
        "lab": lab.name,
        "at_work": {**holder.as_dict(), "said": holder.said()} if holder else None,
        "guest": guest,
        "io_error": io_error,
        "address": lab.address,
        "snapshot": word,
        "snapshot_taken_at": taken_at,
        "run": known.get("run"),
        "collected": bool(known.get("collected")),
        "dirty": bool(known.get("dirty")),
        "network": _unless_broken(lambda: _network(lab), problems, "unknown"),
        "drift": [] if holder else _unless_broken(lambda: _drift(lab), problems, []),
        "sealed": False,
        **(_run(lab.gateway_dir / known["run"], problems) if known.get("run") else {}),
        "problems": list(dict.fromkeys(problems)),
    }


def _unless_broken(ask: Callable[[], T], problems: list[str], otherwise: T) -> T:
    try:
        return ask()
    except LabError as error:
        problems.append(error.message)
        return otherwise


def _guest(lab: Lab) -> tuple[str, bool]:
    """Its state, and whether an I/O error of this host paused it."""
    with Hypervisor() as hypervisor:
        return hypervisor.state(lab.name), hypervisor.paused_by_io_error(lab.name)


def _network(lab: Lab) -> str:
    with Hypervisor() as hypervisor:
        is_there = hypervisor.domain(lab.name) is not None
        return network_gate.mode_now(lab, hypervisor) if is_there else "absent"


def _drift(lab: Lab) -> list[str]:
    """What somebody changed of guest, network and frozen files, in words."""
    with Hypervisor() as hypervisor:
        return [one.said for one in drift.find(session.place(lab), hypervisor)]


def _run(folder: Path, problems: list[str]) -> dict[str, Any]:
    progress = Progress()
    for row in EventTail(folder).rows():
        progress.apply(row)
    settings = _unless_broken(lambda: _settings(folder), problems, {})
    for name, more in zip(("minutes", "budget_usd"), commands.extension(folder), strict=True):
        settings = settings | {name: settings[name] + more} if name in settings else settings
    return {
        "phase": progress.phase,
        "step": progress.step,
        "elapsed_seconds": progress.elapsed,
        "cost_usd": progress.cost_usd,
        "minutes": settings.get("minutes"),
        "budget_usd": settings.get("budget_usd"),
        "sealed": progress.summary is not None,
        "paused": progress.paused,
        "gateway_alive": process.alive(folder),
        "quiet_seconds": _quiet(folder),
        "watchdog": watchdog.unresolved(folder) if progress.summary is None else "",
        "commands": _commands(folder),
        "page": access.read(folder).get("url"),
    }


def _commands(folder: Path) -> list[dict[str, Any]]:
    """What was asked of the session: id, name, args, who, why, state (queued, delivered, acknowledged)."""
    keys = ("id", "name", "args", "who", "why", "time", "state")
    return [{key: item[key] for key in keys if key in item} for item in commands.listed(folder)]


def _quiet(folder: Path) -> float | None:
    """Seconds since the guest pushed an event; None where it never did."""
    try:
        found = (folder / EVENTS).stat()
    except OSError:
        return None
    return round(time.time() - found.st_mtime, 1) if found.st_size else None


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / "run.json"
    try:
        settings = json.loads(path.read_text())
        return {name: float(settings[name]) for name in ("minutes", "budget_usd")}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise LabError(f"the settings of the run can't be read: {path}: {error}") from error


def _snapshot(lab: Lab, known: dict[str, Any]) -> tuple[str, str | None]:
    """The snapshot's word and when it was taken."""
    found = snapshot.manifest(session.place(lab))
    if not found:
        return "none", None
    if not found["verified"] or found["fingerprint"] != known.get("fingerprint"):
        return "not verified", found["taken_at"]
    return "verified" if found["fingerprint"] == fingerprint.of(lab) else "stale", found["taken_at"]
