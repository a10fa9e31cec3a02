"""HOST: does an accelerator run a guest: boots a kernel for a moment, or 512 bytes where there is none."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

SECONDS = 20
BANNER = "Linux version"  # the first line of any kernel
EXIT_WORD, EXIT_PORT = 0x10, 0xF4
EXIT_CODE = EXIT_WORD << 1 | 1  # what isa-debug-exit makes of the word
# mov al, EXIT_WORD; out EXIT_PORT, al; hlt. Then zeros, and the two bytes that make it a boot sector.
SECTOR = bytes([0xB0, EXIT_WORD, 0xE6, EXIT_PORT, 0xF4]).ljust(510, b"\0") + b"\x55\xaa"


def problem(accelerator: str, kernel: Path | None = None, seconds: float = SECONDS) -> str:
    """Why no guest boots with it (`kvm`, `tcg`), in words; empty when one did.

    Without a kernel the guest stays in real mode: a machine was seen whose KVM ran that and no kernel.
    Raises FileNotFoundError where QEMU is not installed.
    """
    base = ["qemu-system-x86_64", "-accel", accelerator, "-machine", "pc", "-m", "256", "-display", "none"]
    base += ["-nodefaults", "-no-user-config", "-no-reboot"]
    with tempfile.TemporaryDirectory(prefix="lab-smoke-") as folder:
        return _boot(base + (_with_kernel(kernel) if kernel else _with_sector(Path(folder))), seconds)


def _boot(command: list[str], seconds: float) -> str:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as late:
        said = (late.stdout or b"").decode(errors="replace")
        return "" if BANNER in said else f"a guest did not boot within {seconds:.0f} s"
    if done.returncode == EXIT_CODE or BANNER in done.stdout.decode(errors="replace"):
        return ""
    return (
        " ".join(done.stderr.decode(errors="replace").split())[-200:] or f"QEMU ended with {done.returncode}"
    )


def _with_kernel(kernel: Path) -> list[str]:
    # It finds no root file system, panics, and reboots at once, which -no-reboot turns into the end.
    return ["-kernel", str(kernel), "-append", "console=ttyS0 panic=-1", "-serial", "stdio"]


def _with_sector(folder: Path) -> list[str]:
    disk = folder / "sector.img"
    disk.write_bytes(SECTOR)
    device = f"isa-debug-exit,iobase={EXIT_PORT:#x},iosize=0x01"
    return ["-drive", f"file={disk},format=raw,if=ide,snapshot=on", "-device", device]
