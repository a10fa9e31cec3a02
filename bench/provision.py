"""HOST: provisioning a bare guest with Mitogen and without (linear strategy with pipelining), alternating.

usage (as root): .venv/bin/python bench/provision.py [--rounds N]

Builds a lab of its own (`labbench`) anew for each measurement and removes it at the end. Prints JSON:
seconds from the first boot's end to the reboot (the safeguards' tasks alone), and the ratio of the medians.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from labkit import config, fingerprint, host, playbooks, provision, state
from labkit.progress import Progress

OWN = {
    "lab_name": "labbench",
    "lab_network_cidr": "192.168.152.0/24",
    "lab_host_address": "192.168.152.1",
    "lab_guest_address": "192.168.152.10",
    "lab_guest_mac": "52:54:00:1a:b0:12",
}
FIRST, LAST = "users : ", "domain : Shut the guest down"


def measure(lab: config.Lab, mitogen: bool) -> float:
    """Build the guest from the image; seconds its safeguards took."""
    os.environ["LAB_MITOGEN"] = "1" if mitogen else "0"
    if lab.dir.exists():
        state.update(lab.dir, built=None)
    marks: dict[str, float] = {}

    def on_task(name: str) -> None:
        for mark in (FIRST, LAST):
            if name.startswith(mark):
                marks.setdefault(mark, time.monotonic())

    playbooks.run("up", lab, on_task, lab_fingerprint=fingerprint.of(lab))
    return marks[LAST] - marks[FIRST]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    rounds = parser.parse_args().rounds
    shipped = config.load()
    lab = dataclasses.replace(shipped, guest={**shipped.guest, **OWN})
    host.ensure_libvirt()
    seconds: dict[bool, list[float]] = {True: [], False: []}
    try:
        for number in range(rounds):
            for mitogen in (True, False):
                seconds[mitogen].append(measure(lab, mitogen))
                print(f"round {number}, mitogen {mitogen}: {seconds[mitogen][-1]:.1f} s", file=sys.stderr)
    finally:
        provision.down(lab, Progress(), discard=True)
    with_it, without = statistics.median(seconds[True]), statistics.median(seconds[False])
    print(
        json.dumps(
            {
                "rounds": rounds,
                "mitogen_seconds": round(with_it, 1),
                "pipelining_seconds": round(without, 1),
                "ratio": round(with_it / without, 2),
            }
        )
    )


if __name__ == "__main__":
    main()
