"""HOST: the snapshot set: taking it, going back to it, and the receipt that proves it.

A set is a folder of frozen disks, a RAM image, the domain XML and `manifest.json`;
snapshots/README.md says what each file is for.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit import card_filter, disks, guest_agent, state
from labkit.domain_xml import with_backing_chain, with_card_filter
from labkit.errors import EVIDENCE, UNREACHABLE, LabError
from labkit.guest import Hypervisor
from labkit.receipt import Receipt
from labkit.ssh import Shell

FORMAT = 2  # of the set, its manifest, and how a resumed guest is told the time
RAM = "ram.save"
MAX_CLOCK_ERROR_SECONDS = 2.0
FREEZE_PROGRAM = "/usr/local/sbin/lab-freeze"
RESUME_PROGRAM = "/usr/local/sbin/lab-resume"
RESUME_CHANNEL = "vm-lab.resume.0"
SEED_BYTES = 64
COLD = "cold boot"
AGENT_SECONDS = 180
MANIFEST_KEYS = ("fingerprint", "host_key", "sha256", "taken_at", "verified", "versions")


@dataclass(frozen=True)
class Place:
    """Where one lab's guest lives: its domain name, its folder and its fixed address."""

    name: str
    dir: Path
    address: str

    @property
    def set_dir(self) -> Path:
        return self.dir / "set"

    @property
    def disks_dir(self) -> Path:
        return self.dir / "disks"

    @property
    def keys_dir(self) -> Path:
        return self.dir / "keys"


def manifest(place: Place) -> dict[str, Any] | None:
    """The manifest of the lab's set, or None when there is no set. LabError when it is damaged."""
    path = place.set_dir / "manifest.json"
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text())
        missing = [key for key in MANIFEST_KEYS if key not in found]
    except (OSError, ValueError, TypeError) as error:
        raise _damaged(path, str(error)) from error
    if missing:
        raise _damaged(path, f"it lacks {', '.join(missing)}")
    return found


def _damaged(path: Path, reason: str) -> LabError:
    cure = "`lab down`, then `lab up` builds the guest again"
    return LabError(f"{path} is damaged: {reason}", cure, EVIDENCE)


def require_verified(place: Place) -> dict[str, Any]:
    """The manifest of a set that was verified; LabError otherwise."""
    found = manifest(place)
    if found is None:
        raise LabError(
            f"the guest '{place.name}' has no snapshot",
            "`lab up` builds the guest and takes one; `lab status` shows what exists",
        )
    if found.get("format") != FORMAT:
        raise LabError(
            f"the snapshot of '{place.name}' was taken by another version of the kit",
            "`lab up` builds the guest again and takes a new one; `lab collect` first, where a run is in it",
        )
    # A later build that was interrupted has taken the definition this set belongs to away.
    if not found["verified"] or state.read(place.dir).get("fingerprint") != found["fingerprint"]:
        raise LabError(
            f"the snapshot of '{place.name}' is not verified: the last `lab up` did not finish",
            "`lab up` builds the guest again and takes a new one",
        )
    return found


def take(place: Place, fingerprint: str) -> dict[str, Any]:
    """Freeze the running guest into a new set; returns its manifest. The guest is off afterwards.

    fingerprint: hash over everything the guest was built from. An older set is replaced only when
    the new one is complete.
    """
    new = place.dir / "set.new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(mode=0o711)
    try:
        found = _freeze(place, new, fingerprint)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)  # half a set is gigabytes on a disk that may just be full
        raise
    _replace_folder(new, place.set_dir)
    state.update(place.dir, marker=None)
    return found


def _freeze(place: Place, new: Path, fingerprint: str) -> dict[str, Any]:
    """Fill the folder `new` with a whole set."""
    with Hypervisor() as hypervisor:
        guest_agent.run(hypervisor, place.name, [FREEZE_PROGRAM])
        live = hypervisor.live_form(place.name)
        hypervisor.save(place.name, new / RAM)
        xml = hypervisor.saved_xml(new / RAM)
        versions = hypervisor.versions()
    frozen = {target: str(place.set_dir / file) for target, file in disks.WRITABLE.items()}
    for file in disks.WRITABLE.values():
        disks.flatten(place.disks_dir / file, new / file)
    for file in disks.FIXED:
        disks.copy(place.disks_dir / file, new / file)
    (new / "domain.xml").write_text(with_backing_chain(xml, frozen))
    (new / "live.xml").write_text(live)
    # The disks, the RAM image and the seed hold the guest's host key. libvirt gives QEMU what it opens.
    for file in (RAM, *disks.WRITABLE.values(), *disks.FIXED):
        (new / file).chmod(0o400)
    found = {
        "format": FORMAT,
        "name": place.name,
        "taken_at": _now(),
        "fingerprint": fingerprint,
        "verified": False,
        "versions": versions,
        "host_key": (place.keys_dir / "ssh_host_ed25519_key.pub").read_text().split()[1],
        "sha256": {path.name: disks.sha256(path) for path in sorted(new.iterdir())},
    }
    state.write_json(new / "manifest.json", found)
    return found


def mark_verified(place: Place) -> None:
    """Record that the set was verified on a throw-away overlay and reverted with a good receipt."""
    found = manifest(place)
    state.write_json(place.set_dir / "manifest.json", {**found, "verified": True, "verified_at": _now()})


def annotate(place: Place, **facts: Any) -> dict[str, Any]:
    """Add facts to the manifest: `parts` (see fingerprint.py), `files` and `definitions` (see drift.py)."""
    found = {**(manifest(place) or {}), **facts}
    state.write_json(place.set_dir / "manifest.json", found)
    return found


def revert(place: Place) -> Receipt:
    """Go back to the set; the guest runs afterwards. The receipt says what was proved.

    Raises LabError when there is nothing to go back to or the guest does not come up; a check
    that does not hold is in the receipt, not an exception.
    """
    found = manifest(place)
    if found is None:
        require_verified(place)
    _demand_whole(place, found)
    (place.dir / "receipt.json").unlink(missing_ok=True)  # an older one must not stand for this revert
    receipt = Receipt(place.name, _now())
    begin = time.monotonic()
    with Hypervisor() as hypervisor, ThreadPoolExecutor(2) as background:
        hypervisor.start_network(place.name)
        making = background.submit(_make_disks, place)
        go = threading.Event()
        go.set()
        hashing = background.submit(_frozen_hashes, place, found, go)
        hypervisor.stop(place.name)
        receipt.seconds["stop"] = time.monotonic() - begin
        making.result()
        _put_disks(place)
        state.update(place.dir, run=None, collected=None, dirty=None)  # gone with the old overlays
        with _held(go):  # QEMU reads its memory: both would wait for each other
            _start(hypervisor, place, found, receipt)
        receipt.seconds["resume"] = time.monotonic() - begin - receipt.seconds["stop"]
        _renew_clock_and_seed(hypervisor, place, receipt.mode)
        receipt.seconds["renew"] = time.monotonic() - begin - sum(receipt.seconds.values())
        _check_inside(place, found, receipt)
        receipt.seconds["ssh"] = time.monotonic() - begin - sum(receipt.seconds.values())
        _check_outside(hypervisor, place, found, receipt, hashing.result())
    receipt.seconds["total"] = time.monotonic() - begin
    receipt.seconds = {part: round(value, 2) for part, value in receipt.seconds.items()}
    state.write_json(place.dir / "receipt.json", receipt.as_dict())
    _remove_old_disks(place)
    return receipt


def switch_off(place: Place) -> None:
    """Turn the guest off; its overlays stay."""
    with Hypervisor() as hypervisor:
        hypervisor.stop(place.name)


def _demand_whole(place: Place, found: dict[str, Any]) -> None:
    missing = [file for file in found["sha256"] if not (place.set_dir / file).is_file()]
    if missing:
        raise _damaged(place.set_dir, f"{', '.join(missing)} is missing")


def _make_disks(place: Place) -> None:
    """New overlays and copies beside the ones in use; the old guest may still be stopping."""
    place.disks_dir.mkdir(mode=0o711, exist_ok=True)
    for file in disks.WRITABLE.values():
        disks.make_overlay(place.disks_dir / f"{file}.new", place.set_dir / file)
    for file in disks.FIXED:
        disks.copy(place.set_dir / file, place.disks_dir / f"{file}.new")


def _put_disks(place: Place) -> None:
    """The new files in place of the old ones, which stay beside them: removing gigabytes takes a while."""
    for file in (*disks.WRITABLE.values(), *disks.FIXED):
        if (place.disks_dir / file).exists():
            (place.disks_dir / file).replace(place.disks_dir / f"{file}.old")
        (place.disks_dir / f"{file}.new").replace(place.disks_dir / file)


def _remove_old_disks(place: Place) -> None:
    for old in place.disks_dir.glob("*.old"):
        old.unlink()


def _start(hypervisor: Hypervisor, place: Place, found: dict[str, Any], receipt: Receipt) -> None:
    """Resume from the RAM image, or boot cold where that can't work; the receipt says which."""
    now = hypervisor.versions()
    if now != found["versions"]:
        receipt.mode, receipt.reason = COLD, f"taken on {found['versions']}, this host has {now}"
    else:
        try:
            hypervisor.restore(place.set_dir / RAM, _xml_to_resume(hypervisor, place))
            return
        except LabError as error:
            receipt.mode, receipt.reason = COLD, error.message
            hypervisor.stop(place.name)
            _make_disks(place)
            _put_disks(place)
    hypervisor.start(place.name)


def _xml_to_resume(hypervisor: Hypervisor, place: Place) -> str:
    """The set's XML behind the filter of the definition: a sealed guest is so from its first instruction."""
    frozen = (place.set_dir / "domain.xml").read_text()
    return with_card_filter(frozen, card_filter.at_start(hypervisor, place.name))


def _renew_clock_and_seed(hypervisor: Hypervisor, place: Place, mode: str) -> None:
    """Step the clock and reseed the kernel's generator; sshd starts after it, so no key is used before."""
    if mode == COLD:
        guest_agent.wait(hypervisor, place.name, AGENT_SECONDS)  # the time is told when the boot is over
        guest_agent.run(hypervisor, place.name, [RESUME_PROGRAM], f"{_time_and_seed()}\n".encode())
        return
    answer = guest_agent.ask_over(hypervisor, RESUME_CHANNEL, place.name, _time_and_seed())
    if answer != "resumed":
        raise LabError(
            f"the guest '{place.name}' did not renew its clock and seed: {answer or 'it says nothing'}",
            "`lab revert` starts again from the snapshot; `lab up` takes a new one",
            UNREACHABLE,
        )


def _time_and_seed() -> str:
    return f"{time.time():.3f} {secrets.token_hex(SEED_BYTES)}"


def _check_inside(place: Place, found: dict[str, Any], receipt: Receipt) -> None:
    """One command over SSH answers for clock, marker and address; then a new marker is written."""
    old = state.read(place.dir).get("marker", "")
    new = f"/var/tmp/lab-marker-{secrets.token_hex(8)}"
    with Shell(place.address, place.keys_dir, seconds=60) as shell:
        key = shell.client.get_transport().get_remote_server_key().get_base64()
        before = time.time()
        # Shell builtins alone: each program started costs an emulated guest a tenth of a second.
        _, answer = shell.run(
            f"echo $EPOCHREALTIME; test -n '{old}' && test -e '{old}' && echo there || echo gone;"
            f" set -- $SSH_CONNECTION; echo $3; : > {new} && echo written; sync -f {new} >/dev/null 2>&1 &"
        )
        after = time.time()
    clock, marker, addresses, written = (answer.splitlines() + [""] * 4)[:4]
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


def _clock_error(answer: str, before: float, after: float) -> float:
    """Seconds the guest's clock lies outside the moments before and after it was read."""
    try:
        clock = float(answer)
    except ValueError:
        return float("inf")
    return max(before - clock, clock - after, 0.0)


def _check_outside(
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


def _frozen_hashes(place: Place, found: dict[str, Any], go: threading.Event) -> dict[str, str]:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)  # the resuming guest goes first
    return {file: disks.sha256(place.set_dir / file, go) for file in found["sha256"]}


@contextlib.contextmanager
def _held(go: threading.Event) -> Iterator[None]:
    """What waits for `go` waits until the block is left, in whatever way."""
    go.clear()
    try:
        yield
    finally:
        go.set()


def _replace_folder(new: Path, target: Path) -> None:
    old = target.with_name(target.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    new.rename(target)
    os.sync()
    shutil.rmtree(old, ignore_errors=True)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
