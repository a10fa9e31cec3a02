"""TESTS: labs in temporary folders: a whole inventory of their own, nothing of this machine's libvirt."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import driver_guest
import loopback
import pytest
import yaml

from labkit import config, guest, snapshot, state
from labkit.config import Lab

MANIFEST = {
    "format": snapshot.FORMAT,
    "name": "unit",
    "taken_at": "2026-11-29T18:00:00Z",
    "verified": True,
    "versions": {"libvirt": "9.0.0", "qemu": "7.2.0", "processor": "x86_64"},
    "host_key": "AAAA",
    "sha256": {},
}


@pytest.fixture
def inventory(tmp_path: Path) -> Callable[..., Path]:
    """Writes a copy of the shipped inventory with other values for both files; returns its folder."""

    def write(guest: dict[str, Any] | None = None, run: dict[str, Any] | None = None) -> Path:
        folder = tmp_path / "inventory"
        shutil.copytree(config.SHIPPED_INVENTORY, folder, dirs_exist_ok=True)
        ours = {"lab_name": "unit", "lab_state_dir": str(tmp_path / "state")}
        (folder / config.GUEST_FILE).write_text(yaml.safe_dump(ours | (guest or {})))
        (folder / config.RUN_FILE).write_text(yaml.safe_dump(run or {}))
        return folder

    return write


@pytest.fixture
def make_lab(inventory) -> Callable[..., Lab]:
    """A lab of such an inventory."""
    return lambda guest=None, run=None: config.load(inventory(guest, run))


@pytest.fixture
def lab(make_lab) -> Lab:
    """A lab with the shipped values, in a temporary folder."""
    return make_lab()


def write_manifest(lab: Lab, **changes: Any) -> dict[str, Any]:
    """A snapshot set that is nothing but its manifest, and the state that belongs to it."""
    found = MANIFEST | {"fingerprint": "f" * 64} | changes
    lab.set_dir.mkdir(parents=True, exist_ok=True)
    (lab.set_dir / "manifest.json").write_text(json.dumps(found))
    state.update(lab.dir, fingerprint=found["fingerprint"])
    return found


@pytest.fixture
def with_manifest() -> Callable[..., dict[str, Any]]:
    return write_manifest


@pytest.fixture
def hypervisor(monkeypatch) -> Iterator[guest.Hypervisor]:
    """libvirt's test driver in place of the machine's own, also for connections the kit opens itself."""
    monkeypatch.setattr(guest.Hypervisor.__init__, "__defaults__", (driver_guest.URI,))
    with driver_guest.connected() as connected:
        yield connected


@pytest.fixture
def running(hypervisor) -> guest.Hypervisor:
    """A guest that the test driver holds for a running one."""
    hypervisor.ensure_domain("unit", driver_guest.XML, driver_guest.UUID)
    hypervisor.start("unit")
    return hypervisor


@pytest.fixture
def free_port() -> int:
    return loopback.free_port()
