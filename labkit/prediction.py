"""HOST: what `lab up` would do and why: decided from manifest, definitions, frozen files; changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from labkit import drift, fingerprint, lock, session, snapshot
from labkit.config import Lab
from labkit.errors import LabError
from labkit.guest import Hypervisor

NOTHING, REDEFINE, CONVERGE, REBUILD, BUILD = "nothing", "redefine", "converge", "rebuild", "build"
WAIT = "wait"
SPOKEN = {
    WAIT: "nothing now: another command is at work; ask again when it is over",
    NOTHING: "nothing to do: the snapshot is what the inventory asks for",
    REDEFINE: "define guest and network again as they were; the snapshot stays",
    CONVERGE: "go back to the snapshot, apply the safeguards, take a new snapshot",
    REBUILD: "build the guest again from the image, and take a new snapshot",
    BUILD: "build the guest from the image, and take a snapshot",
}
SHOWN = 12


@dataclass(frozen=True)
class Prediction:
    """would: one of the words above. why: sentences, the files and variables that changed by name.

    at_work: the command that holds the lab, where one does.
    """

    would: str
    why: tuple[str, ...] = ()
    at_work: lock.Holder | None = None

    def as_dict(self) -> dict[str, Any]:
        holder = self.at_work.as_dict() if self.at_work else None
        return {"would": self.would, "why": list(self.why), "at_work": holder}

    def text(self) -> str:
        """For a person."""
        more = [f"  ... and {len(self.why) - SHOWN} more"] if len(self.why) > SHOWN else []
        return "\n".join([SPOKEN[self.would], *(f"  {line}" for line in self.why[:SHOWN]), *more])


def from_outside(lab: Lab) -> Prediction:
    """Like `of`, for who does not hold the lab: while another command does, there is no telling."""
    if holder := lock.holder(lab.state_dir, lab.name):
        return Prediction(WAIT, (holder.said(),), holder)
    return of(lab)


def of(lab: Lab) -> Prediction:
    """What `lab up` would do now. Reads only; raises LabError where libvirt does not answer."""
    place = session.place(lab)
    try:
        found = snapshot.require_verified(place)
    except LabError as error:
        return Prediction(BUILD, (error.message,))
    with Hypervisor() as hypervisor:
        drifts = drift.find(place, hypervisor)
        defined = hypervisor.domain(lab.name) is not None and hypervisor.network(lab.name) is not None
    spoiled = _spoiled(place, found)
    if spoiled:
        return Prediction(REBUILD, tuple(spoiled))
    if found["fingerprint"] != fingerprint.of(lab):
        return _changed(lab, found)
    objects = tuple(one.said for one in drifts if one.kind != "files")
    if objects:
        return Prediction(REDEFINE, objects)
    if not defined:  # a set of an older kit, without definitions
        return Prediction(REBUILD, ("the guest or its network is no longer defined in libvirt",))
    return Prediction(NOTHING)


def _spoiled(place: snapshot.Place, found: dict[str, Any]) -> list[str]:
    """Frozen files that are gone or hold something else."""
    gone = [
        f"{name} of the snapshot is gone" for name in found["sha256"] if not (place.set_dir / name).is_file()
    ]
    return gone + [f"{name} of the snapshot was changed" for name in drift.touched_for_good(place)]


def _changed(lab: Lab, found: dict[str, Any]) -> Prediction:
    if not {"parts", "definitions"} <= set(found):  # taken by an older kit
        return Prediction(REBUILD, ("the snapshot is older than the inventory or the roles",))
    changes = fingerprint.changes(found["parts"], fingerprint.parts(lab))
    converges = bool(changes) and all(change.converges for change in changes)
    said = tuple(change.said for change in changes) or ("the way in which changes are found changed",)
    return Prediction(CONVERGE if converges else REBUILD, said)
