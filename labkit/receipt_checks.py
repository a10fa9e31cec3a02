"""HOST: what a receipt rests on: looked at inside the resumed guest, and outside at its files and XML."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import threading
import time
from collections.abc import Iterator
from typing import Any

from labkit import boot, disks, state
from labkit.guest import Hypervisor
from labkit.place import Place
from labkit.receipt import Receipt
from labkit.ssh import Shell

MAX_CLOCK_ERROR_SECONDS = 2.0


def check_inside(place: Place, found: dict[str, Any], receipt: Receipt) -> None:
    """One command over SSH answers for clock, marker, address and boot; then a new marker is written."""
    old = state.read(place.dir).get("marker", "")
    new = f"/var/tmp/lab-marker-{secrets.token_hex(8)}"
    with Shell(place.address, place.keys_dir, seconds=60) as shell:
        key = shell.client.get_transport().get_remote_server_key().get_base64()
        before = time.time()
        _, answer = shell.run(_question(old, new))
        after = time.time()
    clock, marker, addresses, written, told = (answer.splitlines() + [""] * 5)[:5]
    receipt.boot_id = boot.named(told)
    error = _clock_error(clock, before, after)
    receipt.check("clock", error <= MAX_CLOCK_ERROR_SECONDS, f"{error:.2f} s off the host's")
    receipt.check(
        "marker", marker == "gone", f"the file written after the snapshot ({old or 'none yet'}) is {marker}"
    )
    receipt.check("new marker", written == "written", f"{new} for the next revert")
    receipt.check(
        "address", place.address in addresses.split(), f"{addresses.strip()}, leased {place.address}"
    )
    receipt.check(
        "host key", key == found["host_key"], "as pinned" if key == found["host_key"] else "another key"
    )
    state.update(place.dir, marker=new)


def _question(old: str, new: str) -> str:
    """Shell builtins alone: each program started costs an emulated guest a tenth of a second."""
    return (
        f"echo $EPOCHREALTIME; test -n '{old}' && test -e '{old}' && echo there || echo gone;"
        f" set -- $SSH_CONNECTION; echo $3; : > {new} && echo written || echo;"
        f" read -r boot < {boot.BOOT_ID}; echo $boot; sync -f {new} >/dev/null 2>&1 &"
    )


def _clock_error(answer: str, before: float, after: float) -> float:
    """Seconds the guest's clock lies outside the moments before and after it was read."""
    try:
        clock = float(answer)
    except ValueError:
        return float("inf")
    return max(before - clock, clock - after, 0.0)


def check_outside(
    hypervisor: Hypervisor, place: Place, found: dict[str, Any], receipt: Receipt, hashes: dict[str, str]
) -> None:
    changed = [file for file, digest in hashes.items() if digest != found["sha256"][file]]
    receipt.check(
        "frozen files", not changed, f"{len(hashes)} unchanged" if not changed else f"changed: {changed}"
    )
    stale = [file for file in disks.WRITABLE.values() if not _stands_on(place, file)]
    receipt.check(
        "overlays",
        not stale,
        "new, on the frozen disks" if not stale else f"not on the frozen disks: {stale}",
    )
    equal = hypervisor.live_form(place.name) == (place.set_dir / "live.xml").read_text()
    receipt.check("domain XML", equal, "equal to the snapshot's" if equal else "differs from the snapshot's")


def _stands_on(place: Place, file: str) -> bool:
    info = json.loads(disks.qemu_img("info", "-U", "--output=json", place.disks_dir / file))
    return info.get("backing-filename") == str(place.set_dir / file)


def frozen_hashes(place: Place, found: dict[str, Any], go: threading.Event) -> dict[str, str]:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)  # the resuming guest goes first
    return {file: disks.sha256(place.set_dir / file, go) for file in found["sha256"]}


@contextlib.contextmanager
def held(go: threading.Event) -> Iterator[None]:
    """What waits for `go` waits until the block is left, in whatever way."""
    go.clear()
    try:
        yield
    finally:
        go.set()
