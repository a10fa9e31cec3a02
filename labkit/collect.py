"""HOST: brings a run home: guest archive, gateway folder and console log into runs/<run_id>."""

from __future__ import annotations

import contextlib
import json
import platform
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any, BinaryIO

from labkit import intake, snapshot, state
from labkit.config import REPO
from labkit.errors import LabError
from labkit.gateway import chain, process, views
from labkit.gateway.page import access
from labkit.guest import Hypervisor
from labkit.ssh import Shell
from labkit.untar import Limits

STREAM = "/usr/local/sbin/lab-collect stream"
# What only this host can know of how a run came home: `lab verify` lets a run off checks by it.
OURS = ("collected", "reason", "record")


def bring(place: snapshot.Place, gateway: Path, target: Path, prepared: dict[str, Any]) -> Path:
    """Stream the prepared run into `target` (runs/<run_id>); marks it collected. Returns the folder.

    prepared: what the guest said when it got the run ready (see roles/collect/files/lab-collect). How the
    run came home is not the guest's to say: what it says of that is left out.
    Raises LabError when the guest breaks off; what came is kept as an incomplete run.
    """
    told = {name: value for name, value in prepared.items() if name not in OURS}
    with Shell(place.address, place.keys_dir) as shell:
        return store(place, gateway, target, shell.stream(STREAM), {**told, "collected": "live"})


def store(
    place: snapshot.Place,
    gateway: Path,
    target: Path,
    stream: BinaryIO,
    prepared: dict[str, Any],
    limits: Limits | None = None,
    beside: dict[str, Path] | None = None,
) -> Path:
    """Make `target` from the guest's tar stream and what the host knows; as `bring` otherwise.

    prepared: `collected` (and off a dead guest's disks `reason` and `record`) in it are this host's words.
    beside: more files of the host's for the run's folder, by their name there.
    """
    process.stop(gateway)
    access.withdraw(gateway)  # the live page's token is no part of the record
    with contextlib.suppress(OSError):  # what is behind the ledger is no reason to leave a run in the guest
        views.heal(gateway)
    extra: dict[str, Path | bytes] = {"gateway": gateway, **(beside or {})}
    console = place.dir / "console.log"
    if console.is_file():
        extra["console.log"] = console
    folder = intake.receive(stream, target, extra, _manifest(place, gateway, prepared, _versions()), limits)
    if not intake.is_complete(folder):
        raise LabError(
            f"run {target.name} came incomplete: {folder / 'manifest.json'} says what is missing",
            "what came is kept; `lab collect` tries again, `lab collect --offline` reads the guest's disks",
        )
    state.update(place.dir, collected=True)
    return folder


def _versions() -> dict[str, str]:
    try:
        with Hypervisor() as hypervisor:
            return hypervisor.versions()
    except LabError:  # what the host knows besides must not keep the guest's record away
        return {}


def _manifest(
    place: snapshot.Place, gateway: Path, prepared: dict[str, Any], versions: dict[str, str]
) -> dict[str, Any]:
    found = snapshot.manifest(place) or {}
    return {
        "settings": _read_json(gateway / "run.json"),
        "options": _read_json(gateway / "options.json"),
        "collected": prepared["collected"],
        "reason": prepared.get("reason"),
        "sealed_in_guest": prepared.get("sealed"),
        "guest": prepared,
        "host": versions,
        "snapshot": {name: found.get(name) for name in ("taken_at", "fingerprint", "sha256", "versions")},
        "receipt": _read_json(place.dir / "receipt.json"),
        "ledger": vars(chain.end_of(gateway)),  # its head: a tail that is cut later shows
        "harness_sha256": _harness_hashes(),
        "packages": _packages(),
        "kit": _kit(),
    }


def _harness_hashes() -> dict[str, str]:
    from labkit import disks
    from labkit.harness_archive import HARNESS, source_files

    return {str(path.relative_to(HARNESS)): disks.sha256(path) for path in source_files()}


def _packages() -> dict[str, str]:
    """What the harness ran with in the guest: package to version."""
    from labkit.harness_archive import HARNESS

    pins = re.findall(r"^([\w.-]+)==([\w.+!-]+)", (HARNESS / "requirements.lock").read_text(), re.M)
    return dict(pins)


def _kit() -> dict[str, str | None]:
    """This kit's own version; the commit where it is a clone and git answers."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    return {"version": project["version"], "commit": _commit(), "python": platform.python_version()}


def _commit() -> str | None:
    """A host need not have git: the kit may have come as an archive."""
    command = ["git", "-C", str(REPO), "rev-parse", "HEAD"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return asked.stdout.strip() or None


def _read_json(path: Path) -> dict[str, Any] | None:
    """What the host knows besides; what is missing or damaged must not keep the guest's record away."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None
