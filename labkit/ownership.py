"""HOST: which libvirt objects are this lab's. Nothing else is ever changed or removed."""

from __future__ import annotations

import fnmatch
import shutil
import uuid
from pathlib import Path

from labkit import state
from labkit.domain_xml import stands_in
from labkit.errors import LabError
from labkit.guest import Hypervisor


def claim(lab_dir: Path) -> dict[str, str]:
    """The UUIDs that the lab's domain, network and filter have or shall get.

    Recorded before anything is made: an `up` that is interrupted in between leaves nothing it does not know.
    """
    made = state.read(lab_dir).get("made") or {}
    claimed = {kind: made.get(kind) or str(uuid.uuid4()) for kind in ("domain", "network", "filter")}
    if claimed != made:
        state.update(lab_dir, made=claimed)
    return claimed


def refuse_foreign(hypervisor: Hypervisor, name: str, lab_dir: Path) -> None:
    """LabError when a domain, network or filter of that name exists that is not this lab's."""
    made = state.read(lab_dir).get("made") or {}
    domain, network = hypervisor.domain(name), hypervisor.network(name)
    card_filter = hypervisor.filter(name)
    by_its_disks = domain is not None and stands_in(domain.XMLDesc(0), str(lab_dir))
    for kind, found in (("domain", domain), ("network", network), ("filter", card_filter)):
        if found is None or found.UUIDString() == made.get(kind):
            continue
        # A state.json that was lost says nothing; the disks of the domain do. Network and filter have none:
        # one that differs from the recorded one is somebody else's.
        if not by_its_disks or (kind != "domain" and made.get(kind)):
            raise _foreign(kind, name)


# What the kit makes in a lab's folder, as patterns: whatever else lies there is somebody's.
OUR_FILES = (
    "disks", "gateway", "keys", "offline", "set", "set.new", "set.old",
    "console.log", "receipt.json*", "state.json*",
)  # fmt: skip


def remove_files(lab_dir: Path) -> list[str]:
    """Remove what the kit made in the lab's folder, and the folder if nothing else is there.

    Returns the names of what stays: it is not ours.
    """
    for path in sorted(lab_dir.iterdir()):
        if not any(fnmatch.fnmatch(path.name, pattern) for pattern in OUR_FILES):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    left = sorted(path.name for path in lab_dir.iterdir())
    if not left:
        lab_dir.rmdir()
    return left


def _foreign(kind: str, name: str) -> LabError:
    return LabError(
        f"a libvirt {kind} named '{name}' exists and is not this lab's",
        "choose another lab_name in guest.yml (and other addresses, if it is another lab)",
    )
