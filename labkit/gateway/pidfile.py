"""HOST: gateway.pid: which process is the gateway of a run.

Pid and start time, one a line, so that a file left behind by a crash, or a pid that was given to another
program since, is not taken for it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from labkit.errors import LabError
from labkit.gateway.files import write_private

FILE_NAME = "gateway.pid"


def demand_none(run_dir: Path) -> None:
    """LabError where another process is the gateway of RUN_DIR: two would break the chain."""
    if (pid := read(run_dir)) not in (None, os.getpid()):
        raise LabError(f"a gateway (process {pid}) already runs on {run_dir}", "`lab watch` shows the run")


def write(run_dir: Path) -> None:
    """Name this process as the gateway of RUN_DIR. LabError where another is."""
    demand_none(run_dir)
    write_private(Path(run_dir) / FILE_NAME, f"{os.getpid()}\n{start_time(os.getpid())}\n")


def read(run_dir: Path) -> int | None:
    """The pid of the gateway that runs for RUN_DIR; None when none does."""
    try:
        pid, started = (Path(run_dir) / FILE_NAME).read_text(encoding="utf-8").splitlines()[:2]
        return int(pid) if start_time(int(pid)) == started else None
    except (OSError, ValueError):
        return None


def remove_own(run_dir: Path) -> None:
    """Remove the file if it names this process."""
    if read(run_dir) == os.getpid():
        (Path(run_dir) / FILE_NAME).unlink(missing_ok=True)


def start_time(pid: int) -> str | None:
    """A text that no other process with this pid ever has; None when no such process runs (or a zombie)."""
    if sys.platform == "win32":
        return _windows_start(pid)
    return _linux_start(pid) if sys.platform == "linux" else _ps_start(pid)


def _linux_start(pid: int) -> str | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold spaces and brackets
    state, ticks_since_boot = fields[0], fields[19]
    return None if state in "ZX" else f"{boot}:{ticks_since_boot}"


def _ps_start(pid: int) -> str | None:
    command = ["ps", "-o", "state=,lstart=", "-p", str(pid)]
    environment = {**os.environ, "LC_ALL": "C"}
    said = subprocess.run(command, capture_output=True, env=environment, check=False).stdout
    state, _, started = said.decode("ascii", "replace").strip().partition(" ")
    return None if not started or state.startswith("Z") else started.strip()


def _windows_start(pid: int) -> str | None:  # pragma: no cover
    import ctypes
    from ctypes import wintypes

    kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    kernel.OpenProcess.restype = wintypes.HANDLE
    kernel.OpenProcess.argtypes = (wintypes.DWORD, wintypes.BOOL, wintypes.DWORD)
    handle = kernel.OpenProcess(0x1000, False, pid)  # PROCESS_QUERY_LIMITED_INFORMATION
    if not handle:
        return None
    try:
        times = [wintypes.FILETIME() for _ in range(4)]
        code = wintypes.DWORD()
        kernel.GetExitCodeProcess(wintypes.HANDLE(handle), ctypes.byref(code))
        if code.value != 259 or not kernel.GetProcessTimes(  # 259: STILL_ACTIVE
            wintypes.HANDLE(handle), *(ctypes.byref(item) for item in times)
        ):
            return None
        return str((times[0].dwHighDateTime << 32) + times[0].dwLowDateTime)
    finally:
        kernel.CloseHandle(wintypes.HANDLE(handle))
