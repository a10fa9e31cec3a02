"""HOST: keeps this machine from falling asleep while a gateway runs, where systemd can be asked for that."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

SYSTEMD = Path("/run/systemd/system")
SETTLE_SECONDS = 0.5


def keep(pid: int, run_id: str) -> str:
    """Hold sleep and idle off until the process `pid` is gone; what a person should know of it, in words.

    The lid of a laptop is not held: logind lets it through by default.
    """
    if not SYSTEMD.is_dir() or not all(map(shutil.which, ("systemd-inhibit", "tail"))):
        return "nothing here keeps this machine awake (no systemd): see that it does not sleep during the run"
    process = subprocess.Popen(
        command(pid, run_id),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=os.sep,
        start_new_session=True,
    )
    time.sleep(SETTLE_SECONDS)
    if process.poll() is not None:
        return "systemd does not keep this machine awake: see that it does not sleep during the run"
    return "this machine does not fall asleep during the run (closing a lid may still send it there)"


def command(pid: int, run_id: str) -> list[str]:
    """The inhibitor lives as long as what it runs: `tail`, which ends with the gateway."""
    inhibit = ["systemd-inhibit", "--what=sleep:idle", "--who=lab", f"--why=run {run_id}", "--mode=block"]
    return [*inhibit, "tail", f"--pid={pid}", "-f", "/dev/null"]
