"""TESTS: overlays, flat copies, the seed and hashes, with the real qemu-img and blkid."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess

import pytest

from labkit import disks
from labkit.errors import LabError

pytestmark = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="no qemu-img here")
MIB = 1 << 20


def write(image, offset: int, text: str) -> None:
    command = ["qemu-io", "-f", "qcow2", "-c", f"write -P {ord(text)} {offset} 4096", str(image)]
    subprocess.run(command, check=True, capture_output=True)


def reads(image, offset: int, text: str) -> bool:
    command = ["qemu-io", "-r", "-f", "qcow2", "-c", f"read -P {ord(text)} {offset} 4096", str(image)]
    answer = subprocess.run(command, check=False, capture_output=True, text=True).stdout
    return "verification failed" not in answer and "4 KiB" in answer


@pytest.fixture
def frozen(tmp_path):
    path = tmp_path / "frozen.qcow2"
    disks.qemu_img("create", "-q", "-f", "qcow2", path, "16M")
    write(path, 0, "A")
    path.chmod(0o400)
    return path


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_an_overlay_shows_what_is_frozen_and_writes_beside_it(frozen, tmp_path):
    before, overlay = disks.sha256(frozen), tmp_path / "overlay.qcow2"
    disks.make_overlay(overlay, frozen)
    write(overlay, MIB, "B")
    assert reads(overlay, 0, "A") and reads(overlay, MIB, "B")
    assert disks.sha256(frozen) == before


def test_a_new_overlay_takes_the_old_ones_place_with_nothing_of_it(frozen, tmp_path):
    overlay = tmp_path / "overlay.qcow2"
    disks.make_overlay(overlay, frozen)
    write(overlay, MIB, "B")
    disks.make_overlay(overlay, frozen)
    assert not reads(overlay, MIB, "B") and reads(overlay, 0, "A")


def test_a_flat_copy_needs_nothing_below_it(frozen, tmp_path):
    overlay, flat = tmp_path / "overlay.qcow2", tmp_path / "flat.qcow2"
    disks.make_overlay(overlay, frozen)
    write(overlay, MIB, "B")
    disks.flatten(overlay, flat)
    overlay.unlink()
    frozen.unlink()
    assert reads(flat, 0, "A") and reads(flat, MIB, "B")
    assert "backing-filename" not in json.loads(disks.qemu_img("info", "--output=json", flat))


def test_no_other_user_of_the_host_reads_what_the_guest_writes(frozen, tmp_path):
    disks.make_overlay(tmp_path / "overlay.qcow2", frozen)
    disks.make_empty(tmp_path / "data.qcow2", 1)
    disks.copy(frozen, tmp_path / "copy.qcow2")
    disks.write_seed(tmp_path / "seed.iso", {"user-data": "#cloud-config\n"})
    assert {path.name: mode(path) for path in tmp_path.iterdir() if path != frozen} == {
        "overlay.qcow2": 0o600,
        "data.qcow2": 0o600,
        "copy.qcow2": 0o600,
        "seed.iso": 0o600,
    }


def test_the_seed_carries_the_label_and_the_files_that_cloud_init_looks_for(tmp_path):
    import pycdlib

    files = {
        "meta-data": "instance-id: unit\n",
        "user-data": "#cloud-config\n",
        "network-config": "version: 2\n",
    }
    disks.write_seed(tmp_path / "seed.iso", files)
    label = subprocess.run(
        ["/sbin/blkid", "-o", "value", "-s", "LABEL", str(tmp_path / "seed.iso")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert label == "cidata\n"
    iso = pycdlib.PyCdlib()
    iso.open(str(tmp_path / "seed.iso"))
    for name, text in files.items():
        with iso.open_file_from_iso(rr_path=f"/{name}") as file:
            assert file.read().decode() == text
    iso.close()


def test_a_copy_that_fails_leaves_the_old_file_and_nothing_half(tmp_path):
    (tmp_path / "target").write_text("old")
    with pytest.raises(OSError):
        disks.copy(tmp_path / "missing", tmp_path / "target")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("target", "old")]


def test_qemu_img_fails_with_its_own_words(tmp_path):
    with pytest.raises(LabError, match="qemu-img convert failed: .*No such file"):
        disks.flatten(tmp_path / "missing.qcow2", tmp_path / "out.qcow2")


def test_a_host_without_qemu_img_is_told_who_names_the_package(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabError, match="qemu-img is not installed") as caught:
        disks.make_empty(tmp_path / "data.qcow2", 1)
    assert "lab doctor" in caught.value.hint
