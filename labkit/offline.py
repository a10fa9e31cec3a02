"""HOST: brings a run home from a guest that no longer answers: from its disks or, without any, the ledger.

The guest is off before anything here begins.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

from labkit import collect, dead_disks, disk_archive, plain_file, salvage, snapshot
from labkit.analysis.text import one_line
from labkit.dead_disks import MIRROR, ROOT, TELEMETRY, Volumes
from labkit.ext4 import Unreadable
from labkit.gateway import process, views
from labkit.gateway.files import read_lines
from labkit.untar import Limits

# Where the databases lie in the guest, and what they are called among the copies.
DATABASES = {
    "sealed.db": (TELEMETRY, "sealed/run.db"),
    "primary.db": (TELEMETRY, "run.db"),
    "primary.db-wal": (TELEMETRY, "run.db-wal"),
    "mirror.db": (MIRROR, "run.db"),
    "mirror.db-wal": (MIRROR, "run.db-wal"),
}
MAX_SUMMARY_BYTES = 1 << 20


def bring(
    place: snapshot.Place,
    sandbox: str,
    gateway: Path,
    target: Path,
    reason: str,
    limits: Limits | None = None,
) -> Path:
    """Make `target` (runs/<run_id>) from the disks of the guest; returns the folder.

    sandbox: the protected tree's path in the guest. reason: why the guest was not asked, as a clause.
    Where no disk is left the gateway's events alone become the record. Raises LabError when nothing is left
    at all, this host has no room, or the run was collected already.
    """
    limits = limits or Limits()
    if not process.alive(gateway):  # killed, or gone with this host's power: events.jsonl may lack rows
        with contextlib.suppress(OSError):
            views.heal(gateway)
    if not dead_disks.present(place.disks_dir):
        return _from_events(place, gateway, target, reason, limits)
    with dead_disks.opened(place.dir) as volumes:
        staging = place.dir / dead_disks.FOLDER / "record"
        staging.mkdir(mode=0o700)
        _take_databases(volumes, staging, limits)
        record = salvage.choose(staging, gateway)
        volumes.problems += [*record.problems, *_only_on_the_host(record, gateway)]
        if volumes.lookup(ROOT, f"{sandbox}/workspace") is None:
            volumes.problems.append(f"no workspace at {sandbox}/workspace of {ROOT}")
        summary, sealed = _summary(volumes, record, gateway.name)
        facts = {"collected": "offline", "reason": reason, "record": record.source, "sealed": sealed}
        ours = {"run.db": record.run_db, "mirror.db": record.mirror_db, "summary.json": summary}
        return _store(place, gateway, target, ours, volumes, sandbox, facts, limits, _beside(staging, record))


def said(run_dir: Path) -> list[str]:
    """What a person must know about how this run came home, a sentence a line; empty for a live guest's."""
    facts = json.loads(plain_file.read(run_dir / "manifest.json"))["guest"]
    if facts.get("collected") not in ("offline", "events"):
        return []
    lines = [f"the record is {facts['record']}"]
    lines += (
        [] if facts["sealed"] else ["the run was not sealed: this host wrote summary.json from the record"]
    )
    shown = facts["problems"][:5]
    more = len(facts["problems"]) - len(shown)
    lines += shown + ([f"and {more} more: see {run_dir / 'manifest.json'}"] if more else [])
    return [one_line(line) for line in lines]


def _from_events(place: snapshot.Place, gateway: Path, target: Path, reason: str, limits: Limits) -> Path:
    folder = place.dir / dead_disks.FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    try:
        path, count = salvage.from_events(gateway, folder / "run.db")
        record = salvage.Record(run_db=path, rows=count)
        volumes = Volumes()
        summary, sealed = _summary(volumes, record, gateway.name)
        facts = {
            "collected": "events",
            "reason": reason,
            "record": f"the gateway's events ({count} rows): no disk of the guest is left",
            "sealed": sealed,
        }
        ours = {"run.db": path, "summary.json": summary}
        return _store(place, gateway, target, ours, volumes, "", facts, limits, {})
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _store(
    place: snapshot.Place,
    gateway: Path,
    target: Path,
    ours: dict[str, Path | bytes | None],
    volumes: Volumes,
    sandbox: str,
    facts: dict[str, Any],
    limits: Limits,
    beside: dict[str, Path],
) -> Path:
    present = {name: content for name, content in ours.items() if content is not None}
    # The list goes on growing while the archive is written; it is read when that is over.
    facts = {"ready": True, "running": False, **facts, "problems": volumes.problems}
    with disk_archive.piped(
        lambda file: disk_archive.write(file, present, volumes, sandbox, limits), volumes.problems
    ) as stream:
        return collect.store(place, gateway, target, stream, facts, limits, beside)


def _take_databases(volumes: Volumes, staging: Path, limits: Limits) -> None:
    for name, (label, path) in DATABASES.items():
        if (found := volumes.lookup(label, path)) is None:
            continue
        try:
            disk_archive.copy_out(*found, staging / name, limits.file_bytes)
        except Unreadable as error:
            volumes.problems.append(f"{label}: {path}: {error}")


def _summary(volumes: Volumes, record: salvage.Record, run_id: str) -> tuple[bytes | None, bool]:
    """(summary.json, was the run sealed): as the harness wrote it, else out of the record, else ours."""
    if record.sealed and (found := volumes.lookup(TELEMETRY, "summary.json")):
        fs, inode = found
        try:
            if inode.is_file and inode.size <= MAX_SUMMARY_BYTES:
                text = b"".join(fs.chunks(fs.spans(inode)))
                json.loads(text)
                return text, True
        except (Unreadable, ValueError, RecursionError) as error:
            volumes.problems.append(f"{TELEMETRY}: summary.json: {error}")
    if record.run_db is None:
        return None, False
    sealed = salvage.sealed_summary(record.run_db)
    summary = sealed or salvage.unsealed_summary(record.run_db, run_id)
    return json.dumps(summary, indent=1).encode(), bool(sealed)


def _only_on_the_host(record: salvage.Record, gateway: Path) -> list[str]:
    """The guest may have pushed rows that its disks never got; they are in the run's folder all the same."""
    numbers = (row.get("id") for row in read_lines(gateway / views.EVENTS))
    ahead = sum(1 for number in numbers if type(number) is int and number > record.rows)
    return [f"gateway/{views.EVENTS} has {ahead} rows that the record lacks"] if ahead else []


def _beside(staging: Path, record: salvage.Record) -> dict[str, Path]:
    """What lay in the guest and is not the record: a damaged or shorter database is evidence too."""
    if record.run_db in (staging / "sealed.settled.db", staging / "primary.settled.db"):
        return {}
    names = ("sealed.db", "primary.db", "primary.db-wal")
    return {f"not-the-record/{name}": staging / name for name in names if (staging / name).is_file()}
