"""HOST: `lab up` and `lab down`: from nothing to a verified snapshot, and back to nothing."""

from __future__ import annotations

import contextlib
from typing import Any

from labkit import (
    doctor,
    drift,
    fingerprint,
    images,
    network_gate,
    ownership,
    playbooks,
    prediction,
    session,
    snapshot,
    state,
)
from labkit.config import Lab
from labkit.errors import EVIDENCE, LabError
from labkit.guest import Hypervisor
from labkit.prediction import CONVERGE, NOTHING, REDEFINE
from labkit.progress import Progress

# Playbook and what a person reads while it runs.
BUILD_STEP = ("up", "building the guest and its safeguards")
CONVERGE_STEP = ("converge", "applying the safeguards again to the guest as the snapshot has it")
SET_STEPS = (
    ("snapshot", "taking the snapshot"),
    ("verify", "trying to break the safeguards, as the Worker, on a throw-away copy"),
    ("verified", "reverting and marking the snapshot verified"),
)
STEPS = (BUILD_STEP, *SET_STEPS)


def up(lab: Lab, progress: Progress, discard: bool = False) -> dict[str, Any]:
    """Make a verified snapshot of what the inventory asks for, unless exactly that exists already.

    Does what `prediction.of` says. Returns {"did", "why", "changed": tasks that changed something,
    "snapshot": manifest}. Raises LabError; an interrupted `up` starts clean next time, and one that was
    to apply safeguards again leaves the old snapshot.
    """
    expected = prediction.of(lab)
    where = session.place(lab)
    if expected.would == NOTHING:
        return _done(expected, 0, _annotated(lab, fingerprint.parts(lab)))
    session.refuse_uncollected(lab, discard)
    progress.say(expected.text())
    session.stop_gateways(lab)
    if expected.would == REDEFINE:
        with Hypervisor() as hypervisor:
            changed = drift.redefine(where, hypervisor)
        return _done(expected, len(changed), _annotated(lab, fingerprint.parts(lab), anew=True))
    return _make_set(lab, expected, progress)


def _make_set(lab: Lab, expected: prediction.Prediction, progress: Progress) -> dict[str, Any]:
    images.demand_bundle(lab)
    wanted, parts, where = fingerprint.of(lab), fingerprint.parts(lab), session.place(lab)
    first = CONVERGE_STEP if expected.would == CONVERGE else BUILD_STEP
    if first is CONVERGE_STEP:
        with progress.step("going back to the snapshot"):
            with Hypervisor() as hypervisor:
                drift.redefine(where, hypervisor)  # what was changed by hand must not get into the new set
            network_gate.at_next_start(lab, network_gate.OPEN)
            snapshot.revert(where).demand()
        state.update(lab.dir, dirty=True)
    else:
        images.demand_room(lab)
        doctor.demand_memory(lab)
        with progress.step("looking whether the cached image is whole"):
            images.demand_sound(lab)
        _forget_build(lab)
    changed = 0
    for playbook, title in (first, *SET_STEPS):
        with progress.step(title):
            outcome = playbooks.run(playbook, lab, progress.detail, lab_fingerprint=wanted)
        changed += outcome.changed
        for result in outcome.results.values():
            if result.get("line"):
                progress.say(result["line"])
    return _done(expected, changed, _annotated(lab, parts, anew=True))


def _done(expected: prediction.Prediction, changed: int, manifest: dict[str, Any]) -> dict[str, Any]:
    return {"did": expected.would, "why": list(expected.why), "changed": changed, "snapshot": manifest}


def _annotated(lab: Lab, parts: dict[str, Any], anew: bool = False) -> dict[str, Any]:
    """The manifest with what later questions need: what it was made from, how its files and domain look.

    anew: replace what is there; otherwise only a set of an older kit, which has nothing of it, gets it. The
    files' stamps are always today's: whoever comes here has compared what was touched.
    """
    where = session.place(lab)
    found = snapshot.manifest(where) or {}
    with Hypervisor() as hypervisor:
        facts = drift.facts(where, hypervisor)
    if not anew:
        facts["definitions"] = found.get("definitions", facts["definitions"])
    if {name: found.get(name) for name in facts} == facts and found.get("parts") == parts:
        return found
    return snapshot.annotate(where, parts=parts, **facts)


def prove(lab: Lab, progress: Progress, discard: bool = False) -> dict[str, Any]:
    """Apply the safeguards to the snapshot on a throw-away overlay; the guest is off afterwards.

    Returns {"changed": tasks, "tasks": their names}. Raises LabError: no verified snapshot of today's
    inventory, an uncollected run, or a task that fails.
    """
    refuse_stale(lab)
    session.refuse_uncollected(lab, discard)
    session.stop_gateways(lab)
    where = session.place(lab)
    try:
        network_gate.at_next_start(lab, network_gate.OPEN)
        with progress.step("resuming the snapshot on a throw-away overlay"):
            snapshot.revert(where).demand()
        state.update(lab.dir, dirty=True)
        with progress.step("applying the safeguards once more"):
            outcome = playbooks.run("safeguards", lab, progress.detail)
    finally:
        snapshot.switch_off(where)
    return {"changed": outcome.changed, "tasks": outcome.changed_tasks}


def demand_unchanged(proof: dict[str, Any]) -> None:
    """LabError (evidence) when applying the safeguards a second time changed something."""
    if proof["changed"]:
        raise LabError(
            f"applying the safeguards again changed {proof['changed']}: {', '.join(proof['tasks'])}",
            "mend these tasks: a second run must change nothing; `lab up` then takes a new snapshot",
            EVIDENCE,
        )


def down(lab: Lab, progress: Progress, discard: bool = False) -> list[str]:
    """Remove what `up` made: domain, network, the lab's folder. Images and collected runs stay."""
    if not lab.dir.exists():
        return []
    if discard and state.set_damaged_aside(lab.dir):
        progress.say("state.json was damaged and is set aside")
    session.refuse_uncollected(lab, discard)
    if state.read(lab.dir).get("run"):
        with contextlib.suppress(OSError):  # a full disk is no reason to keep a guest
            state.update(lab.dir, run=None, collected=None)  # an interrupted `down` is repeated as it is
    removed = []
    with progress.step("removing the guest and its network"):
        session.stop_gateways(lab)
        outcome = playbooks.run("down", lab, progress.detail)
        removed = [thing for result in outcome.results.values() for thing in result.get("removed", [])]
    if left := ownership.remove_files(lab.dir):
        progress.say(f"not ours, and left alone in {lab.dir}: {', '.join(left)}")
        return removed
    return [*removed, str(lab.dir)]


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
            "`lab up` takes a new one; `lab up --check` says what changed and what it would do",
        )
