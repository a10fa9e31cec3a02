"""HOST: is the guest there: asked before a verb that needs it, and while a run is watched."""

from __future__ import annotations

import socket
import threading
import time

from labkit.boot import SSH_PORT
from labkit.config import Lab
from labkit.errors import UNREACHABLE, LabError
from labkit.guest import Hypervisor
from labkit.libvirt_connection import URI

LOOK_SECONDS = 5.0
ANSWER_SECONDS = 2.0  # libvirt answers in a hundredth; one that stands still must not hold a live view up


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


def demand_sshd(lab: Lab, seconds: float = LOOK_SECONDS) -> None:
    """LabError unless the guest takes connections: one that boots does not yet."""
    try:
        socket.create_connection((lab.address, SSH_PORT), seconds).close()
    except OSError as error:
        raise LabError(
            f"the guest '{lab.name}' does not answer at {lab.address}: {error.strerror or error}",
            "it may still boot (a minute under emulation): repeat; its console log is in the lab's folder",
            UNREACHABLE,
        ) from error


class Watcher:
    """Says whether the guest went away while a run is watched.

    Looks at libvirt every few seconds at most, and believes only two looks in a row: the last events of a
    run may still be on their way. A libvirt that does not answer proves nothing; a look that takes long goes
    on beside.
    """

    def __init__(self, name: str, look_seconds: float = LOOK_SECONDS) -> None:
        self._name = name
        self._look_seconds = look_seconds
        self._looked_at = time.monotonic()
        self._found = ("running", 0)  # the last word, and how many in a row were not `running`
        self._look: threading.Thread | None = None

    def word(self) -> str:
        """Empty while the guest runs (or nobody knows), else its state."""
        is_over = self._look is None or not self._look.is_alive()
        if is_over and time.monotonic() - self._looked_at >= self._look_seconds:
            self._looked_at = time.monotonic()
            self._look = threading.Thread(target=self._take, daemon=True)
            self._look.start()
            self._look.join(ANSWER_SECONDS)
        word, missed = self._found
        return word if missed > 1 else ""

    def _take(self) -> None:
        word = state_of(self._name)
        self._found = (word, 0 if word == "running" else self._found[1] + 1)


def state_of(name: str) -> str:
    """The guest's state; `running` where libvirt does not answer, which proves nothing."""
    try:
        with Hypervisor() as hypervisor:
            return hypervisor.state(name)
    except LabError:
        return "running"
