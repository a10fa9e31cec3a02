"""HOST: our revert against libvirt's own internal snapshot, on the same guest, alternating.

usage (as root, after `lab up`): .venv/bin/python bench/revert.py [--rounds N] [--inventory DIR]

Ours is timed to the receipt: the old guest stopped, frozen files hashed, resumed, clock and seed
renewed, the first SSH command answered, every check made. Libvirt's is timed to the first SSH
command answered; it steps no clock, renews no seed and proves nothing. Prints JSON: seconds and the
ratio of the medians, with and without the time that stopping the old guest takes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from labkit import config, host, session, snapshot, state
from labkit.guest import Hypervisor
from labkit.ssh import Shell

INTERNAL = "<domainsnapshot><name>bench</name></domainsnapshot>"


def ours(place: snapshot.Place) -> dict[str, float]:
    """One revert with its receipt. Returns seconds: total, and what of it stopped the old guest."""
    os.sync()  # neither side pays for what the other one wrote
    receipt = snapshot.revert(place)
    receipt.demand()
    return {"total": receipt.seconds["total"], "stop": receipt.seconds["stop"]}


def native(place: snapshot.Place, hypervisor: Hypervisor) -> float:
    """Take an internal snapshot (not timed), use the guest, go back. Returns seconds."""
    domain = hypervisor.domain(place.name)
    internal = domain.snapshotCreateXML(INTERNAL, 0)
    with Shell(place.address, place.keys_dir) as shell:
        shell.run("echo used > /root/used; sync")
    os.sync()
    begin = time.monotonic()
    domain.revertToSnapshot(internal, 0)
    with Shell(place.address, place.keys_dir) as shell:
        _, answer = shell.run("test -e /root/used && echo still there || echo gone")
    seconds = time.monotonic() - begin
    if answer.strip() != "gone":
        raise SystemExit(f"libvirt's revert did not revert: {answer}")
    internal.delete(0)
    return seconds


def measure(place: snapshot.Place, rounds: int) -> dict[str, object]:
    """Alternate both, after one round of each that does not count."""
    mine: list[dict[str, float]] = []
    theirs: list[float] = []
    with Hypervisor() as hypervisor:
        for number in range(rounds + 1):
            result, other = ours(place), native(place, hypervisor)
            print(f"round {number}: ours {result['total']:.2f} s, libvirt {other:.2f} s", file=sys.stderr)
            if number:
                mine.append(result)
                theirs.append(other)
    total = statistics.median(result["total"] for result in mine)
    without = statistics.median(result["total"] - result["stop"] for result in mine)
    libvirt = statistics.median(theirs)
    return {
        "rounds": rounds,
        "ours_seconds": round(total, 2),
        "ours_without_stopping_seconds": round(without, 2),
        "libvirt_seconds": round(libvirt, 2),
        "ratio": round(total / libvirt, 2),
        "ratio_without_stopping": round(without / libvirt, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--inventory", type=Path)
    arguments = parser.parse_args()
    lab = config.load(arguments.inventory)
    host.ensure_libvirt()
    place = session.place(lab)
    snapshot.require_verified(place)
    session.refuse_uncollected(lab, discard=False)
    try:
        result = measure(place, arguments.rounds)
    finally:
        snapshot.switch_off(place)
        state.update(lab.dir, dirty=True)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
