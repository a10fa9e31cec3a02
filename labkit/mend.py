"""HOST: what the gateway's watchdog has done about a session in trouble.

The gateway knows no guest; these are its helpers (labkit/gateway/helpers.py), run as processes of their own.
`guest` prints the guest's state; `repair` brings the session back; `seal` brings home what there is.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from labkit import collecting, config, lock, resume, session, state
from labkit.config import Lab
from labkit.errors import USAGE, LabError
from labkit.gateway.helpers import BUSY
from labkit.guest import Hypervisor
from labkit.progress import Progress
from labkit.ssh import Shell

END_SECONDS = 60


def main(arguments: list[str]) -> int:
    """INVENTORY RUNS RUN guest|repair|seal. RUNS: the folder of collected runs, for the gateway has no place.

    Exit code 75: another command is at work on the lab.
    """
    if len(arguments) != 4 or arguments[3] not in _WHAT:
        print("usage: INVENTORY RUNS RUN guest|repair|seal", file=sys.stderr)
        return USAGE
    inventory, os.environ["LAB_RUNS"], run_id, what = arguments
    try:
        return _WHAT[what](config.load(Path(inventory)), run_id)
    except LabError as error:
        print(f"lab: {error.message}", flush=True)
        return error.code


def _guest(lab: Lab, run_id: str) -> int:
    with Hypervisor() as hypervisor:
        print(hypervisor.state(lab.name))
    return 0


def _repair(lab: Lab, run_id: str) -> int:
    """A paused guest goes on; a harness that is frozen is ended; the run is resumed within its wall limit."""
    if lock.holder(lab.state_dir, lab.name):
        print("another command is at work on this lab")
        return BUSY
    _demand_ours(lab, run_id)
    with lock.hold(lab.state_dir, lab.name, "run --resume"):
        if _unpause(lab):
            print("the guest was paused and goes on")
            return 0
        with contextlib.suppress(LabError):  # a guest that is off is booted by the resume
            _end_harness(lab)
        resume.resume(lab, run_id, Progress(), by_person=False)
    print("the run goes on")
    return 0


def _demand_ours(lab: Lab, run_id: str) -> None:
    """The run may have been collected or thrown away since this gateway began."""
    known = state.read(lab.dir)
    if known.get("run") != run_id or known.get("collected"):
        raise LabError(f"run {run_id} is no longer in the guest '{lab.name}'", "nothing was repaired")


def _unpause(lab: Lab) -> bool:
    with Hypervisor() as hypervisor:
        if hypervisor.state(lab.name) != "paused":
            return False
        if hypervisor.paused_by_io_error(lab.name):
            raise LabError(
                f"an I/O error paused the guest '{lab.name}': this host's disk is full or broken",
                "free space, then `lab status` says how to go on",
            )
        domain = hypervisor.domain(lab.name)
        if domain is not None:
            domain.resume()
        return True


def _end_harness(lab: Lab) -> None:
    with Hypervisor() as hypervisor:
        if hypervisor.state(lab.name) != "running":
            return
    with Shell(lab.address, lab.keys_dir, seconds=END_SECONDS) as shell:
        shell.run(session.END_HARNESS, END_SECONDS)


def _seal(lab: Lab, run_id: str) -> int:
    _demand_ours(lab, run_id)
    progress = Progress()
    with lock.hold(lab.state_dir, lab.name, "collect --stop"):
        folder = session.current(lab)
        target = collecting.collect(lab, folder, True, False, progress.detail, progress.say)
    print(f"what there is of run {run_id} is in {target}")
    return 0


_WHAT = {"guest": _guest, "repair": _repair, "seal": _seal}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
