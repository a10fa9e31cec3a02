"""HOST: `lab up` and `lab down`: from nothing to a verified snapshot, and back to nothing."""

from __future__ import annotations

import shutil
from typing import Any

from labkit import fingerprint, playbooks, session, snapshot, state
from labkit.config import Lab
from labkit.errors import LabError
from labkit.guest import Hypervisor
from labkit.progress import Progress

# Playbook and what a person reads while it runs.
STEPS = (
    ("up", "building the guest and its safeguards"),
    ("snapshot", "taking the snapshot"),
    ("verify", "trying to break the safeguards, as the Worker, on a throw-away copy"),
    ("verified", "reverting and marking the snapshot verified"),
)


def up(lab: Lab, progress: Progress, discard: bool = False) -> dict[str, Any]:
    """Build the guest and take a verified snapshot, unless exactly that exists already.

    Returns {"changed": tasks that changed something, "snapshot": manifest}. A change of guest.yml, a
    role or a playbook builds the guest anew. Raises LabError; an interrupted `up` starts clean next time.
    """
    wanted = fingerprint.of(lab)
    where = session.place(lab)
    if _up_to_date(lab, where, wanted):
        return {"changed": 0, "snapshot": snapshot.manifest(where)}
    session.refuse_uncollected(lab, discard)
    if (where.set_dir / "manifest.json").exists():
        progress.say("the snapshot is not what the inventory and the roles ask for: building the guest anew")
    session.stop_gateways(lab)
    _forget_build(lab)
    changed = 0
    for playbook, title in STEPS:
        with progress.step(title):
            outcome = playbooks.run(playbook, lab, progress.detail, lab_fingerprint=wanted)
        changed += outcome.changed
        for result in outcome.results.values():
            if result.get("line"):
                progress.say(result["line"])
    return {"changed": changed, "snapshot": snapshot.manifest(where)}


def down(lab: Lab, progress: Progress, discard: bool = False) -> list[str]:
    """Remove what `up` made: domain, network, the lab's folder. Images and collected runs stay."""
    if not lab.dir.exists():
        return []
    if discard and state.set_damaged_aside(lab.dir):
        progress.say("state.json was damaged and is set aside")
    session.refuse_uncollected(lab, discard)
    removed = []
    with progress.step("removing the guest and its network"):
        session.stop_gateways(lab)
        outcome = playbooks.run("down", lab, progress.detail)
        removed = [thing for result in outcome.results.values() for thing in result.get("removed", [])]
    shutil.rmtree(lab.dir)
    return [*removed, str(lab.dir)]


def _up_to_date(lab: Lab, where: snapshot.Place, wanted: str) -> bool:
    try:
        found = snapshot.require_verified(where)
    except LabError:
        return False
    if found["fingerprint"] != wanted:
        return False
    with Hypervisor() as hypervisor:
        return hypervisor.domain(lab.name) is not None


def _forget_build(lab: Lab) -> None:
    """The next build starts from fresh disks, whatever an interrupted one left."""
    if lab.dir.exists():
        state.update(lab.dir, built=None, run=None, collected=None, dirty=None)


def refuse_stale(lab: Lab) -> None:
    """LabError when the snapshot was built from another inventory or other roles than today's."""
    found = snapshot.require_verified(session.place(lab))
    if found["fingerprint"] != fingerprint.of(lab):
        raise LabError(
            f"the snapshot of '{lab.name}' is older than the inventory or the roles",
            "`lab up` builds the guest again and takes a new one",
        )
