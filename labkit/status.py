"""HOST: the truth at this moment: guest, snapshot, run, gateway, and the sentence that says what to type."""

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

QUIET_SECONDS = 900  # longer than a command (run_command_timeout_seconds) and a model call together


def _unfinished(known: dict[str, Any]) -> bool:
    return bool(known["run"]) and not known["collected"]


# What to type next, by what is the case; the first row that fits speaks.
NEXT = (
    (
        lambda known: known["at_work"] and _unfinished(known) and not known["sealed"],
        "`lab watch` shows the run; `lab status` says more when that command is over",
    ),
    (
        lambda known: known["at_work"],
        "wait until it is over, or end it: Ctrl-C in its terminal, or `kill {at_work[pid]}`",
    ),
    (lambda known: known["guest"] == "unknown", "`lab doctor` starts libvirt, or says why it can't"),
    (lambda known: known["guest"] == "absent", "`lab up` builds the guest"),
    (
        lambda known: known["guest"] == "paused" and known["io_error"],
        "`df -h`: this host could not write for the guest; free space, then"
        " `virsh -c qemu:///system resume {lab}` goes on",
    ),
    (
        lambda known: known["guest"] == "paused",
        "somebody paused the guest: `virsh -c qemu:///system resume {lab}` goes on",
    ),
    (
        lambda known: known["snapshot"] == "damaged" and not _unfinished(known),
        "`lab down`, then `lab up` builds the guest again",
    ),
    (
        lambda known: known["snapshot"] in ("none", "not verified"),
        "`lab up` builds the guest and takes a snapshot",
    ),
    (
        lambda known: known["run"] and known["sealed"] and not known["collected"],
        "`lab collect` brings the run home",
    ),
    (
        lambda known: _unfinished(known) and known["guest"] != "running",
        "the guest stopped in the middle of a run: `lab run --resume {run}` boots it as it was and goes on,"
        " `lab collect` reads the run off its disks, `lab revert --discard` gives it up",
    ),
    (
        lambda known: _unfinished(known) and not known["gateway_alive"],
        "the gateway of the run is gone: `lab run --resume {run}` goes on with it,"
        " `lab collect --stop` ends it and brings it home",
    ),
    (
        lambda known: _unfinished(known) and known["quiet_seconds"] is None,
        "nothing was heard of its session yet; the harness takes up to a minute to start under emulation. If"
        " `lab run` was killed in its start,"
        " `lab run --resume {run}` goes on with it, `lab revert --discard` gives it up",
    ),
    (
        lambda known: _unfinished(known) and (known["quiet_seconds"] or 0) > QUIET_SECONDS,
        "nothing was heard of the session for long: if it died, `lab run --resume {run}` goes on with it;"
        " `lab watch` shows the run, `lab collect --stop` ends it and brings it home",
    ),
    (
        lambda known: _unfinished(known),
        "`lab watch` shows the run, `lab collect --stop` ends it and brings it home",
    ),
    (
        lambda known: known["snapshot"] == "stale",
        "inventory or roles changed: `lab up` brings the snapshot up to date, `lab up --check` says how",
    ),
    (lambda known: known["drift"], "`lab up` looks at what changed and puts it right"),
    (lambda known: known["dirty"], "`lab revert` goes back to the snapshot, `lab run` does so by itself"),
    (lambda known: True, "`lab run` starts a session"),
)


def describe(lab: Lab) -> dict[str, Any]:
    """guest: absent, off, running, paused, crashed, unknown. io_error: one paused it. snapshot: none,
    not verified, verified, stale, damaged. at_work: the command that holds the lab (verb, pid, since), or
    None. network: open, sealed, changed by hand, unknown. drift: what somebody changed behind the kit's back;
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
        return network_gate.mode_now(lab, hypervisor)


def _drift(lab: Lab) -> list[str]:
    """What somebody changed of guest, network and frozen files, in words."""
    with Hypervisor() as hypervisor:
        return [one.said for one in drift.find(session.place(lab), hypervisor)]


def sentence(known: dict[str, Any]) -> str:
    """The description for a person: what is, then what to type."""
    lines = [
        f"guest '{known['lab']}': {known['guest']}"
        + (" by an I/O error" if known["io_error"] else "")
        + (", used since the snapshot" if known["dirty"] else "")
        + f", network {known['network']}"
    ]
    taken = f" ({known['snapshot_taken_at']})" if known["snapshot_taken_at"] else ""
    yet = " yet" if known["at_work"] and known["snapshot"] in ("none", "not verified") else ""
    lines.append(f"snapshot: {known['snapshot']}{yet}{taken}")
    if known["run"]:
        lines.append(_run_line(known))
        if known.get("watchdog") and not known["collected"]:
            lines.append(f"the watchdog: {known['watchdog']}")
        waiting = [item for item in known.get("commands", []) if item["state"] != "acknowledged"]
        if not (known["sealed"] or known["collected"]):
            lines += [f"command {item['id']}, {item['name']}: {item['state']}" for item in waiting]
    lines += known["drift"] + known["problems"]
    if known["at_work"]:
        lines.append(known["at_work"]["said"])
    lines.append(next(advice for fits, advice in NEXT if fits(known)).format(**known))
    return "\n".join(lines)


def _run_line(known: dict[str, Any]) -> str:
    how = "collected" if known["collected"] else "sealed, not collected" if known["sealed"] else "not sealed"
    parts = [f"run {known['run']}: {how}", f"phase {known['phase'] or '-'}", f"step {known['step']}"]
    if known["minutes"] is not None:
        parts.append(f"{known['elapsed_seconds'] / 60:.1f} of {known['minutes']:.0f} min")
        parts.append(f"${known['cost_usd']:.4f} of ${known['budget_usd']:.2f}")
    if known["paused"] and not known["sealed"]:
        parts.append("paused on request: `lab unpause` lets it go on")
    parts.append("gateway alive" if known["gateway_alive"] else "gateway stopped")
    return ", ".join(parts)


def _run(folder: Path, problems: list[str]) -> dict[str, Any]:
    progress = Progress()
    for row in EventTail(folder).poll():
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
