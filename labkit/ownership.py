"""HOST: which libvirt objects are this lab's. Nothing else is ever changed or removed."""

from __future__ import annotations

import uuid
from pathlib import Path

from labkit import state
from labkit.domain_xml import stands_in
from labkit.errors import LabError
from labkit.guest import Hypervisor


def claim(lab_dir: Path) -> dict[str, str]:
    """The UUIDs that the lab's domain and network have or shall get.

    Recorded before anything is made: an `up` that is interrupted in between leaves nothing it does not know.
    """
    made = state.read(lab_dir).get("made") or {}
    claimed = {kind: made.get(kind) or str(uuid.uuid4()) for kind in ("domain", "network")}
    if claimed != made:
        state.update(lab_dir, made=claimed)
    return claimed


def refuse_foreign(hypervisor: Hypervisor, name: str, lab_dir: Path) -> None:
    """LabError when a domain or network of that name exists that is not this lab's."""
    made = state.read(lab_dir).get("made") or {}
    domain, network = hypervisor.domain(name), hypervisor.network(name)
    by_its_disks = domain is not None and stands_in(domain.XMLDesc(0), str(lab_dir))
    for kind, found in (("domain", domain), ("network", network)):
        if found is None or found.UUIDString() == made.get(kind):
            continue
        # A state.json that was lost says nothing; the disks of the domain do.
        if not by_its_disks:
            raise _foreign(kind, name)


def _foreign(kind: str, name: str) -> LabError:
    return LabError(
        f"a libvirt {kind} named '{name}' exists and is not this lab's",
        "choose another lab_name in guest.yml (and other addresses, if it is another lab)",
    )
