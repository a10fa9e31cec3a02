"""HOST: what a guest that was just resumed or booted is told first: the time, and new randomness."""

from __future__ import annotations

import secrets
import time

from labkit import boot, guest_agent
from labkit.errors import UNREACHABLE, LabError
from labkit.guest import Hypervisor
from labkit.place import Place
from labkit.receipt import COLD

RESUME_PROGRAM = "/usr/local/sbin/lab-resume"
RESUME_CHANNEL = "vm-lab.resume.0"
SEED_BYTES = 64
AGENT_SECONDS = 180
AGENT_TRIES, AGENT_DELAY_SECONDS = 3, 1.0  # the receipt allows a clock that is two seconds off


def renew(hypervisor: Hypervisor, place: Place, mode: str) -> None:
    """Step the clock and reseed the kernel's generator; sshd starts after it, so no key is used before."""
    if mode == COLD:
        boot.wait(hypervisor, place.name, place.address)  # the time is told when the boot is over
        guest_agent.wait(hypervisor, place.name, AGENT_SECONDS)
        _renew_by_agent(hypervisor, place.name)
        return
    answer = guest_agent.ask_over(hypervisor, RESUME_CHANNEL, place.name, _time_and_seed())
    if answer != "resumed":
        raise LabError(
            f"the guest '{place.name}' did not renew its clock and seed: {answer or 'it says nothing'}",
            "`lab revert` starts again from the snapshot; `lab up` takes a new one",
            UNREACHABLE,
        )


def _renew_by_agent(hypervisor: Hypervisor, name: str) -> None:
    """The time is old by as long as the agent took: a guest that has just booted may be too busy once."""
    for _ in range(AGENT_TRIES):
        began = time.monotonic()
        guest_agent.run(hypervisor, name, [RESUME_PROGRAM], f"{_time_and_seed()}\n".encode())
        if time.monotonic() - began < AGENT_DELAY_SECONDS:
            return


def _time_and_seed() -> str:
    return f"{time.time():.3f} {secrets.token_hex(SEED_BYTES)}"
