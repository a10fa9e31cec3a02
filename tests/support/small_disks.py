"""File systems of a few megabytes for tests that need a real one: full, detached, without attributes."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def command(*words: object) -> None:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise OSError(f"{words}: {done.stderr}")


class Disk:
    """A mounted file system. `folder` is open to every user; what lies in it goes with the disk."""

    def __init__(self, home: Path, kind: str, megabytes: int) -> None:
        self.folder, self.image = home / "disk", home / "disk.img"
        self.kind, self.megabytes = kind, megabytes
        self.folder.mkdir()

    def mount(self, options: str = "") -> None:
        more = f",{options}" if options else ""
        if self.kind != "ext4":
            size = f"size={self.megabytes}m{more}"
            return command("mount", "-t", self.kind, "-o", size, "lab", self.folder)
        if not self.image.exists():
            with open(self.image, "wb") as file:
                file.truncate(self.megabytes << 20)
            command("mkfs.ext4", "-q", "-F", self.image)
        return command("mount", "-o", f"loop{more}", self.image, self.folder)

    def remount(self, options: str) -> None:
        command("mount", "-o", f"remount,{options}", self.folder)

    def unmount(self) -> None:
        command("umount", "-l", self.folder)


@contextlib.contextmanager
def small_disk(kind: str, megabytes: int) -> Iterator[Disk]:
    """kind: ext4 (on a loop device), tmpfs or ramfs. Skips the test where it cannot be mounted."""
    home = Path(tempfile.mkdtemp(prefix="lab-disk-"))
    home.chmod(0o755)
    disk = Disk(home, kind, megabytes)
    try:
        disk.mount()
    except OSError as error:
        pytest.skip(f"needs root and the right to mount: {error}")
    try:
        disk.folder.chmod(0o755)
        yield disk
    finally:
        while disk.folder.is_mount():
            disk.unmount()
        subprocess.run(["/bin/rm", "-rf", str(home)], check=False)
