"""HOST: what changed behind the kit's back since the set was made: definitions by hand, frozen files touched.

Cheap enough for every `lab status`: files are compared by size, time and inode; a revert hashes them.
"""

from __future__ import annotations

import difflib
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit import disks, ownership, snapshot, state
from labkit.errors import LabError
from labkit.guest import Hypervisor, definition, network_definition

SHOWN_CHARS = 120


@dataclass(frozen=True)
class Drift:
    """kind: domain, network or files. said: what differs, in words. cure: what to type."""

    kind: str
    said: str
    cure: str = "`lab up` puts it right"


def facts(place: snapshot.Place, hypervisor: Hypervisor) -> dict[str, Any]:
    """What the manifest keeps to find drift by.

    files: name to [size in bytes, mtime in ns, inode]. definitions: the canonical XML of `domain` and
    `network` as `lab up` defined them.
    """
    domain, network = hypervisor.domain(place.name), hypervisor.network(place.name)
    defined = {"domain": definition(domain) if domain else "", "network": ""}
    if network:
        defined["network"] = network_definition(network)
    found = snapshot.manifest(place) or {}
    return {
        "files": {name: _stamp(place.set_dir / name) for name in found.get("sha256", {})},
        "definitions": defined,
    }


def find(place: snapshot.Place, hypervisor: Hypervisor) -> list[Drift]:
    """Every drift of the lab's guest; empty where there is none, or no set that could tell."""
    found = snapshot.manifest(place) or {}
    defined = found.get("definitions", {})
    drifts = _of_objects(place.name, hypervisor, defined) if defined else []
    return drifts + _of_files(place, found)


def refuse(place: snapshot.Place) -> None:
    """LabError where guest or network is not what `lab up` defined: what runs would be another machine."""
    with Hypervisor() as hypervisor:
        for drift in find(place, hypervisor):
            if drift.kind != "files":  # the receipt of the revert that follows names those, by their hashes
                raise LabError(drift.said, drift.cure)


def redefine(place: snapshot.Place, hypervisor: Hypervisor) -> list[str]:
    """Define domain and network again as the manifest has them; returns what changed. Stops the guest."""
    defined = (snapshot.manifest(place) or {})["definitions"]
    ownership.refuse_foreign(hypervisor, place.name, place.dir)
    ours = state.read(place.dir).get("made", {})
    hypervisor.stop(place.name)
    changed = []
    if hypervisor.ensure_network(place.name, defined["network"], ours["network"]):
        changed.append(f"network {place.name}")
    if hypervisor.ensure_domain(place.name, defined["domain"], ours["domain"]):
        changed.append(f"domain {place.name}")
    return changed


def touched_for_good(place: snapshot.Place) -> list[str]:
    """Of the frozen files that were touched, those whose content is another one (hashes only these)."""
    found = snapshot.manifest(place) or {}
    suspects = _touched(place, found)
    return [name for name in suspects if disks.sha256(place.set_dir / name) != found["sha256"][name]]


def _of_objects(name: str, hypervisor: Hypervisor, defined: dict[str, str]) -> list[Drift]:
    drifts = []
    domain, network = hypervisor.domain(name), hypervisor.network(name)
    now = {
        "domain": definition(domain) if domain else None,
        "network": network_definition(network) if network else None,
    }
    for kind, label in (("domain", f"the guest '{name}'"), ("network", f"the network '{name}'")):
        if now[kind] is None:
            drifts.append(Drift(kind, f"{label} is no longer defined in libvirt"))
        elif now[kind] != defined[kind]:
            where = first_difference(defined[kind], now[kind])
            drifts.append(Drift(kind, f"{label} is not as `lab up` defined it: {where}"))
    return drifts


def _of_files(place: snapshot.Place, found: dict[str, Any]) -> list[Drift]:
    missing = [name for name in found.get("sha256", {}) if not (place.set_dir / name).is_file()]
    drifts = []
    if missing:
        said = f"files of the snapshot are gone: {', '.join(missing)}"
        drifts.append(Drift("files", said, "`lab up` builds the guest again"))
    if touched := _touched(place, found):
        said = f"frozen files were touched since the snapshot was taken: {', '.join(touched)}"
        drifts.append(Drift("files", said, "`lab up` looks whether they still hold what they held"))
    return drifts


def _touched(place: snapshot.Place, found: dict[str, Any]) -> list[str]:
    stamps = found.get("files", {})
    there = [name for name in stamps if (place.set_dir / name).is_file()]
    return [name for name in there if _stamp(place.set_dir / name) != stamps[name]]


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def first_difference(old: str, new: str) -> str:
    """The first lines in which two XML texts differ, on one line."""
    delta = difflib.unified_diff(_lines(old), _lines(new), lineterm="", n=0)
    words = [line for line in delta if line[:1] in "+-" and line[:3] not in ("---", "+++")]
    gone = next((line[1:].strip() for line in words if line[0] == "-"), "nothing")
    come = next((line[1:].strip() for line in words if line[0] == "+"), "nothing")
    return f"{gone} became {come}"[: 2 * SHOWN_CHARS]


def _lines(xml: str) -> list[str]:
    root = ET.fromstring(xml)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode").splitlines()
