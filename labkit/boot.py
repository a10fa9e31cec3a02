"""HOST: waits for a guest that boots. One that stands still is reset: an emulator can lose an interrupt.

Seen once: QEMU 7.2, emulated, a busy host. The first read of the disk was answered and signalled, the guest's
kernel never heard of it, and udev waited for ever.
"""

from __future__ import annotations

import contextlib
import re
import socket
import time
from typing import Any

from labkit.errors import UNREACHABLE, LabError
from labkit.guest import Hypervisor

SSH_PORT = 22
STILL_SECONDS = 120.0
STILL_CORES = 0.1  # of a processor's core; an emulated guest that boots takes one and more
RESETS = 2
LOOK_SECONDS = 1.0
BOOT_ID = "/proc/sys/kernel/random/boot_id"  # in the guest: what its kernel calls this boot
_NAMED = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def wait(hypervisor: Hypervisor, name: str, address: str, seconds: float = 900, port: int = SSH_PORT) -> int:
    """Return once the guest's sshd takes connections; returns how often the guest had to be reset.

    Raises LabError (unreachable) after `seconds`, or when the guest went off.
    """
    domain = hypervisor.known(name)
    deadline, resets, stillness = time.monotonic() + seconds, 0, Stillness()
    while not _answers(address, port):
        with hypervisor.saying(f"waiting for the guest {name}"):
            if time.monotonic() > deadline or not domain.isActive():
                raise LabError(
                    f"the guest '{name}' did not come up within {seconds:.0f} s",
                    "`lab status` says what it does; its console log is in the lab's folder",
                    UNREACHABLE,
                )
            if resets < RESETS and stillness.lasts(time.monotonic(), _cpu_seconds(domain)):
                domain.reset()
                resets, stillness = resets + 1, Stillness()
        time.sleep(LOOK_SECONDS)
    return resets


def named(said: str) -> str:
    """The boot id that a guest tells; empty where that is none."""
    return said.strip() if _NAMED.fullmatch(said.strip()) else ""


class Stillness:
    """Whether a guest has done next to nothing for STILL_SECONDS."""

    def __init__(self) -> None:
        self._since: tuple[float, float] | None = None

    def lasts(self, now: float, cpu_seconds: float) -> bool:
        """now: monotonic. cpu_seconds: what its QEMU has used up to now."""
        began, used = self._since or (now, cpu_seconds)
        if self._since is None or cpu_seconds - used > STILL_CORES * STILL_SECONDS:
            self._since = (now, cpu_seconds)
            return False
        return now - began > STILL_SECONDS


def _answers(address: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=2):
        return True
    return False


def _cpu_seconds(domain: Any) -> float:
    return domain.info()[4] / 1e9
