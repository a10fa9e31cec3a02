"""HOST: is the guest there: asked before a verb that needs it, and while a run is watched."""

from __future__ import annotations

import time

from labkit.config import Lab
from labkit.errors import UNREACHABLE, LabError
from labkit.guest import Hypervisor
from labkit.libvirt_connection import URI

LOOK_SECONDS = 5.0


def demand_running(lab: Lab, wish: str) -> None:
    """LabError unless the guest runs. wish: what can't be done without it, for the sentence."""
    with Hypervisor() as hypervisor:
        found = hypervisor.state(lab.name)
        by_io_error = hypervisor.paused_by_io_error(lab.name)
    if found == "running":
        return
    virsh = f"virsh -c {URI}"
    cures = {
        "absent": "`lab up` builds it",
        "paused": f"free space if this host's disk is full, then `{virsh} resume {lab.name}`",
    }
    boot = (
        f"`lab run` starts it from its snapshot; to boot it as it was left: `{virsh} net-start {lab.name}`"
        f" (if it is down) and `{virsh} start {lab.name}`"
    )
    if by_io_error:
        found = "paused by an I/O error of this host"
        cures[found] = f"`df -h {lab.state_dir}`: free space, then `{virsh} resume {lab.name}` goes on"
    raise LabError(f"the guest '{lab.name}' is {found}: {wish}", cures.get(found, boot), UNREACHABLE)


class Watcher:
    """Says whether the guest went away while a run is watched.

    Looks at libvirt every few seconds at most, and believes only two looks in a row: the last events of a
    run may still be on their way. A libvirt that does not answer proves nothing.
    """

    def __init__(self, name: str, look_seconds: float = LOOK_SECONDS) -> None:
        self._name = name
        self._look_seconds = look_seconds
        self._looked_at = time.monotonic()
        self._state = "running"
        self._missed = 0

    def word(self) -> str:
        """Empty while the guest runs (or nobody knows), else its state."""
        if time.monotonic() - self._looked_at >= self._look_seconds:
            self._looked_at = time.monotonic()
            self._state = _state(self._name)
            self._missed = 0 if self._state == "running" else self._missed + 1
        return self._state if self._missed > 1 else ""


def _state(name: str) -> str:
    try:
        with Hypervisor() as hypervisor:
            return hypervisor.state(name)
    except LabError:
        return "running"
