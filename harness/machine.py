"""GUEST: what this machine is, read once at start for the Worker's prompt."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def describe(workspace: Path) -> str:
    """'Debian GNU/Linux 12 (bookworm), 2 CPU cores, 5.8 GB of memory, 120 GB of disk'."""
    disk = shutil.disk_usage(workspace).total / 1e9
    cores = os.cpu_count() or 1
    return f"{_system()}, {cores} CPU cores, {memory_gb():.1f} GB of memory, {disk:.0f} GB of disk"


def _system() -> str:
    try:
        lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "Linux"
    names = [line.split("=", 1)[1].strip('"') for line in lines if line.startswith("PRETTY_NAME=")]
    return names[0] if names else "Linux"


def memory_gb() -> float:
    """All there is, in units of 2**30 bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def boot_id() -> str:
    """Another one after each boot of this machine; empty where the kernel tells none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def disk_percent(path: Path) -> float:
    """Used share of what an ordinary user could use, 0-100, as df counts it: of space, or of inodes."""
    disk = os.statvfs(path)
    used = disk.f_blocks - disk.f_bfree
    inodes = (disk.f_files - disk.f_ffree) / max(1, disk.f_files)  # btrfs counts none
    return 100.0 * max(used / max(1, used + disk.f_bavail), inodes)
