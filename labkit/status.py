"""HOST: the truth at this moment: guest, snapshot, run, gateway, and the sentence that says what to type."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from labkit import fingerprint, session, snapshot, state
from labkit.config import Lab
from labkit.gateway import process
from labkit.gateway.ledger import EventTail
from labkit.gateway.progress import Progress
from labkit.guest import Hypervisor

# What to type next, by what is the case; the first row that fits speaks.
NEXT = (
    (lambda known: known["guest"] == "absent", "`lab up` builds the guest"),
    (
        lambda known: known["guest"] == "paused",
        "the guest is paused (an I/O error, a full host disk?): free space, `lab revert`",
    ),
    (lambda known: known["snapshot"] in ("none", "not verified"), "`lab up` takes the snapshot"),
    (
        lambda known: known["run"] and known["sealed"] and not known["collected"],
        "`lab collect` brings the run home",
    ),
    (
        lambda known: known["run"] and not known["collected"] and known["guest"] == "running",
        "`lab watch` shows the run",
    ),
    (
        lambda known: known["run"] and not known["collected"],
        "the guest stopped in the middle of a run: `lab revert --discard`",
    ),
    (lambda known: known["dirty"], "`lab revert` goes back to the snapshot, `lab run` does so by itself"),
    (lambda known: True, "`lab run` starts a session"),
)


def describe(lab: Lab) -> dict[str, Any]:
    """guest: absent, off, running, paused, crashed. snapshot: none, not verified, verified, stale.

    run: the run_id of the session in the guest, or None; with phase, step, elapsed_seconds and
    cost_usd as the gateway heard them last.
    """
    where = session.place(lab)
    with Hypervisor() as hypervisor:
        guest = hypervisor.state(lab.name)
    known = state.read(lab.dir) if lab.dir.exists() else {}
    found = snapshot.manifest(where)
    return {
        "lab": lab.name,
        "guest": guest,
        "address": lab.address,
        "snapshot": _snapshot_word(found, fingerprint.of(lab)),
        "snapshot_taken_at": found["taken_at"] if found else None,
        "run": known.get("run"),
        "collected": bool(known.get("collected")),
        "dirty": bool(known.get("dirty")),
        "sealed": False,
        **(_run(lab.gateway_dir / known["run"]) if known.get("run") else {}),
    }


def sentence(known: dict[str, Any]) -> str:
    """The description for a person: what is, then what to type."""
    lines = [
        f"guest '{known['lab']}': {known['guest']}" + (", used since the snapshot" if known["dirty"] else "")
    ]
    taken = f" ({known['snapshot_taken_at']})" if known["snapshot_taken_at"] else ""
    lines.append(f"snapshot: {known['snapshot']}{taken}")
    if known["run"]:
        lines.append(_run_line(known))
    lines.append(next(advice for fits, advice in NEXT if fits(known)))
    return "\n".join(lines)


def _run_line(known: dict[str, Any]) -> str:
    how = "collected" if known["collected"] else "sealed, not collected" if known["sealed"] else "not sealed"
    parts = [f"run {known['run']}: {how}", f"phase {known['phase'] or '-'}", f"step {known['step']}"]
    parts.append(f"{known['elapsed_seconds'] / 60:.1f} of {known['minutes']:.0f} min")
    parts.append(f"${known['cost_usd']:.4f} of ${known['budget_usd']:.2f}")
    parts.append("gateway alive" if known["gateway_alive"] else "gateway stopped")
    return ", ".join(parts)


def _run(folder: Path) -> dict[str, Any]:
    progress = Progress()
    for row in EventTail(folder).poll():
        progress.apply(row)
    settings = json.loads((folder / "run.json").read_text())
    return {
        "phase": progress.phase,
        "step": progress.step,
        "elapsed_seconds": progress.elapsed,
        "cost_usd": progress.cost_usd,
        "minutes": settings["minutes"],
        "budget_usd": settings["budget_usd"],
        "sealed": progress.summary is not None,
        "gateway_alive": process.alive(folder),
    }


def _snapshot_word(found: dict[str, Any] | None, wanted: str) -> str:
    if not found:
        return "none"
    if not found.get("verified"):
        return "not verified"
    return "verified" if found["fingerprint"] == wanted else "stale"
