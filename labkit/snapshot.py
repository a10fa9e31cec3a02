"""HOST: the snapshot set: taking it and going back to it; receipt_checks.py proves that it worked.

A set is a folder of frozen disks, a RAM image, the domain XML and `manifest.json`;
snapshots/README.md says what each file is for.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from labkit import awakening, card_filter, disks, guest_agent, receipt_checks, state
from labkit.domain_xml import with_backing_chain, with_card_filter
from labkit.errors import EVIDENCE, LabError
from labkit.guest import Hypervisor
from labkit.place import Place
from labkit.receipt import COLD, Receipt

FORMAT = 2  # of the set, its manifest, and how a resumed guest is told the time
RAM = "ram.save"
FREEZE_PROGRAM = "/usr/local/sbin/lab-freeze"
FREEZE_SECONDS = 300  # syncs, trims and waits; an emulated guest on a busy host took more than 60
START_OVER = "`lab up` starts over"
MANIFEST_KEYS = ("fingerprint", "host_key", "sha256", "taken_at", "verified", "versions")


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
        guest_agent.run(hypervisor, place.name, [FREEZE_PROGRAM], seconds=FREEZE_SECONDS, cure=START_OVER)
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
        hashing = background.submit(receipt_checks.frozen_hashes, place, found, go)
        hypervisor.stop(place.name)
        receipt.seconds["stop"] = time.monotonic() - begin
        making.result()
        _put_disks(place)
        state.update(place.dir, run=None, collected=None, dirty=None)  # gone with the old overlays
        with receipt_checks.held(go):  # QEMU reads its memory: both would wait for each other
            _start(hypervisor, place, found, receipt)
        receipt.seconds["resume"] = time.monotonic() - begin - receipt.seconds["stop"]
        awakening.renew(hypervisor, place, receipt.mode)
        receipt.seconds["renew"] = time.monotonic() - begin - sum(receipt.seconds.values())
        receipt_checks.check_inside(place, found, receipt)
        receipt.seconds["ssh"] = time.monotonic() - begin - sum(receipt.seconds.values())
        receipt_checks.check_outside(hypervisor, place, found, receipt, hashing.result())
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
