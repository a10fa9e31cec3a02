"""HOST: brings libvirt up, with or without systemd, and becomes root where a verb needs it."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from labkit.config import REPO, Lab
from labkit.errors import LabError
from labkit.guest import Hypervisor
from labkit.libvirt_connection import RefusedError, binding
from labkit.progress import warn

KVM = Path("/dev/kvm")
CPUINFO = Path("/proc/cpuinfo")
SYSTEMD = Path("/run/systemd/system")
START_SECONDS = 30
LIBVIRT_LOG = Path("/var/log/libvirt/lab-libvirtd.log")


def become_root(lab: Lab, why: str) -> None:
    """Return when root; otherwise run this same command again under sudo, saying so first."""
    if os.geteuid() == 0:
        return
    if shutil.which("sudo") is None:
        raise LabError(f"{why} needs root, and there is no sudo", "run the same command as root")
    if not sys.stdin.isatty() and _sudo_asks():
        raise LabError(
            f"{why} needs root, and sudo wants a password where there is no terminal to ask at",
            f"type `sudo lab {shlex.join(sys.argv[1:])}` in a terminal, or repeat it as root",
        )
    names = {"LAB_INVENTORY", "LAB_RUNS", "LAB_LOCK", "LAB_MITOGEN", "TERM", "NO_COLOR"}
    providers = lab.run["run_providers"].values()
    keys = ("key_env", "management_key_env")
    names |= {provider[key] for provider in providers for key in keys if provider.get(key)}
    warn(f"lab: {why} needs root: sudo lab {shlex.join(sys.argv[1:])}")
    # Not by `-m` from the repository: relative paths (--task, runs/) count from where the person is.
    program = f"import sys; sys.path.insert(0, {str(REPO)!r}); from labkit.__main__ import main; main()"
    command = ["sudo", f"--preserve-env={','.join(sorted(names))}", sys.executable, "-P", "-c", program]
    os.execvp("sudo", command + sys.argv[1:])


def _sudo_asks() -> bool:
    asked = subprocess.run(["sudo", "-n", "true"], check=False, capture_output=True, stdin=subprocess.DEVNULL)
    return asked.returncode != 0


def ensure_libvirt() -> bool:
    """Start libvirt unless it answers. Returns True when it was started. Wants root."""
    binding()  # without it nothing would ever answer
    if _answers():
        return False
    _let_libvirt_probe_kvm()
    if SYSTEMD.is_dir():
        _start(["systemctl", "start", "virtlogd.socket", "libvirtd.socket", "libvirtd.service"])
    else:
        _start(["virtlogd", "--daemon"])
        _start_under_reaper(["libvirtd"])
    deadline = time.monotonic() + START_SECONDS
    while not _answers():
        if time.monotonic() > deadline:
            raise LabError("libvirt was started but does not answer", "`libvirtd` run by hand shows why")
        time.sleep(0.3)
    return True


def processor_has_virtualisation() -> bool:
    """The flags tell; /dev/kvm can exist where no guest boots under it."""
    flags = CPUINFO.read_text().split()
    return "vmx" in flags or "svm" in flags


def _answers() -> bool:
    try:
        with Hypervisor():
            return True
    except RefusedError:
        raise
    except LabError:
        return False


def _let_libvirt_probe_kvm() -> None:
    """Where only root can open /dev/kvm, libvirt probes QEMU anew at each start (minutes)."""
    if KVM.exists() and KVM.stat().st_mode & 0o777 != 0o660:
        # It saves minutes and no more: a host without that group, or a read-only /dev, goes on.
        with contextlib.suppress(LookupError, OSError):
            shutil.chown(KVM, "root", "kvm")
            KVM.chmod(0o660)
            warn("lab: /dev/kvm now belongs to root:kvm, mode 0660: libvirt starts guests minutes faster so")


def _start_under_reaper(command: list[str]) -> None:
    """Without systemd: detached, with a parent that reaps at once.

    QEMU's processes are handed to the nearest reaper when they end, and libvirt waits until they are
    gone; the init of a container may take seconds over it, at each stop of a guest.
    """
    if shutil.which("tini") is None:
        raise LabError("tini is not installed", "`./lab doctor` installs what is missing")
    with LIBVIRT_LOG.open("ab") as log:
        subprocess.Popen(
            ["tini", "-s", "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _start(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    except FileNotFoundError as error:
        raise LabError(f"{command[0]} is not installed", "`./lab doctor` installs what is missing") from error
    already_there = any(words in done.stderr.lower() for words in ("already running", "pid file", "pidfile"))
    if done.returncode != 0 and not already_there:
        raise LabError(
            f"{' '.join(command)} failed: {done.stderr.strip()}", "`lab doctor` checks this machine"
        )
