"""HOST: runs the volumes role's script on loop devices, in a mount namespace. Needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "roles/volumes/files/volumes.sh"
TOOLS = ("losetup", "sfdisk", "mkfs.ext4", "unshare", "partx", "blkid")
IN_NAMESPACE = 'set -e; mount --bind "$1/etc" /etc; cd "$1"; . ./session.sh'


def loop_device(image: Path) -> str:
    attach = ["losetup", "--find", "--show", "--partscan", str(image)]
    result = subprocess.run(attach, capture_output=True, text=True)
    if result.returncode:
        pytest.skip(f"no loop device can be had here: {result.stderr.strip()}")
    return result.stdout.strip()


@pytest.fixture
def disk(tmp_path: Path):
    """A thin empty 3 GiB disk as a loop device."""
    if os.geteuid() or not all(map(shutil.which, TOOLS)):
        pytest.skip("needs root and util-linux, e2fsprogs")
    shutil.copytree("/etc", tmp_path / "etc", symlinks=True, ignore_dangling_symlinks=True)
    (tmp_path / "etc/fstab").write_text("proc /proc proc defaults 0 0\n")
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(3 << 30)
    device = loop_device(image)
    yield device
    subprocess.run(["partx", "--delete", device], capture_output=True)
    subprocess.run(["losetup", "--detach", device], check=True)


def session(tmp_path: Path, shell: str) -> subprocess.CompletedProcess:
    """Runs `shell` where mounts and /etc/fstab are nobody else's; $run stands for the role's script."""
    (tmp_path / "session.sh").write_text(f'run() {{ sh -s -- "$PWD/sandbox" "$@" <{SCRIPT}; }}\n{shell}\n')
    command = ["unshare", "--mount", "sh", "-c", IN_NAMESPACE, "sh", str(tmp_path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def state(image: Path) -> tuple[bytes, int]:
    """What a partition table or a new file system would change: the first MiB, and the blocks in use."""
    with image.open("rb") as file:
        return file.read(1 << 20), image.stat().st_blocks


def test_an_empty_disk_gets_three_file_systems_once(tmp_path: Path, disk: str) -> None:
    result = session(
        tmp_path,
        f"run {disk} 1 1 no; echo again; run {disk} 1 1 no; echo seen\n"
        'for v in telemetry mirror backups; do findmnt -nro LABEL "$PWD/sandbox/$v"; '
        'stat -c "%U %a" "sandbox/$v"; done; grep -c noatime /etc/fstab',
    )
    assert result.returncode == 0, result.stderr
    first, _, rest = result.stdout.partition("again\n")
    assert first.count("changed: ") == 10
    assert rest.splitlines() == [
        "seen", "lab-telemetry", "root 700", "lab-mirror", "root 700", "lab-backups", "root 700", "3",
    ]  # fmt: skip
    assert (tmp_path / "disk.img").stat().st_blocks * 512 < 64 << 20, "formatting filled the thin disk"


def test_predicting_writes_nothing(tmp_path: Path, disk: str) -> None:
    result = session(tmp_path, f"run {disk} 1 1 yes")
    assert result.returncode == 0 and result.stdout.count("changed: ") == 10
    assert (tmp_path / "disk.img").stat().st_blocks == 0


def test_a_disk_that_holds_something_is_left_alone(tmp_path: Path, disk: str) -> None:
    subprocess.run(["mkfs.ext4", "-q", "-L", "mine", disk], check=True)
    before = state(tmp_path / "disk.img")
    result = session(tmp_path, f"run {disk} 1 1 no")
    assert result.returncode != 0 and "is not empty (ext4" in result.stderr
    assert state(tmp_path / "disk.img") == before


def test_a_missing_disk_is_named(tmp_path: Path, disk: str) -> None:
    result = session(tmp_path, "run /dev/no_such_disk 1 1 no")
    assert result.returncode != 0 and "there is no disk /dev/no_such_disk" in result.stderr
