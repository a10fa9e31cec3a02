"""HOST: `lab status` in words: what is the case, and the sentence that says what to type next."""

from __future__ import annotations

from typing import Any

from labkit.analysis.text import dollars, one_line

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
        "nothing was heard of its session yet; the harness takes up to a minute to start under emulation,"
        " `lab watch` shows the run from then on. If `lab run` was killed in its start,"
        " `lab run --resume {run}` goes on with it,"
        " `lab collect --stop` brings home what there is, `lab revert --discard` gives it up",
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


def sentence(known: dict[str, Any]) -> str:
    """The description for a person: what is, then what to type."""
    lines = [
        f"guest '{known['lab']}': {known['guest']}"
        + (" by an I/O error" if known["io_error"] else "")
        + (", used since the snapshot" if known["dirty"] else "")
        + (f", network {known['network']}" if known["network"] != "absent" else "")
    ]
    taken = f" ({known['snapshot_taken_at']})" if known["snapshot_taken_at"] else ""
    yet = " yet" if known["at_work"] and known["snapshot"] in ("none", "not verified") else ""
    lines.append(f"snapshot: {known['snapshot']}{yet}{taken}")
    if known["run"]:
        lines.append(one_line(_run_line(known)))
        if known.get("watchdog") and not known["collected"]:
            lines.append(one_line(f"the watchdog: {known['watchdog']}"))
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
        parts.append(f"${known['cost_usd']:.4f} of {dollars(known['budget_usd'])}")
    if known["paused"] and not known["sealed"]:
        parts.append("paused on request: `lab unpause` lets it go on")
    parts.append("gateway alive" if known["gateway_alive"] else "gateway stopped")
    return ", ".join(parts)
