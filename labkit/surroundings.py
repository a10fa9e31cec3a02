"""HOST: doctor's checks of what surrounds the kit: other programs, sleep, time, ports. Changes nothing."""

from __future__ import annotations

import errno
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from labkit.config import Lab
from labkit.gateway import awake, process

Answer = tuple[str, str, str]  # state, detail, what to type
APPARMOR = Path("/sys/module/apparmor/parameters/enabled")
DENIED = re.compile(r'apparmor="DENIED".*profile="(libvirt-[^"]*|virt-aa-helper)".*name="([^"]+)"')
COMMAND_SECONDS = 20


def forwarding(lab: Lab) -> Answer:
    """Docker sets the policy of FORWARD to DROP; where libvirt's rules lie elsewhere that cuts guests off."""
    if shutil.which("iptables") is None:
        return "ok", "no iptables here", ""
    done = _run("iptables", "-S", "FORWARD")
    if done is None or done.returncode != 0:
        return "warn", "the FORWARD rules can't be read", "`sudo iptables -S FORWARD` shows why"
    return forwarding_of(done.stdout, lab.guest["lab_network_cidr"])


def forwarding_of(rules: str, cidr: str) -> Answer:
    """rules: what `iptables -S FORWARD` prints."""
    lines = rules.splitlines()
    if "-P FORWARD DROP" not in lines:
        return "ok", "forwarding is not dropped by default", ""
    if any("-j LIBVIRT_FW" in line or (cidr in line and "-j ACCEPT" in line) for line in lines):
        return "ok", "forwarding is dropped by default, and libvirt's guests are let through", ""
    chain = "DOCKER-USER" if any("-j DOCKER-USER" in line for line in lines) else "FORWARD"
    cure = " && ".join(f"sudo iptables -I {chain} {way} {cidr} -j ACCEPT" for way in ("-s", "-d"))
    return (
        "warn",
        "this host drops what it forwards (Docker does that): the guest may reach no internet",
        cure,
    )


def apparmor(lab: Lab) -> Answer:
    if not APPARMOR.is_file() or APPARMOR.read_text().strip() != "Y":
        return "ok", "AppArmor is not in use", ""
    done = _run("dmesg")
    if done is None or done.returncode != 0:
        return "warn", "AppArmor is in use, and the kernel's log can't be read", "`sudo dmesg | grep DENIED`"
    return apparmor_of(done.stdout, str(lab.state_dir))


def apparmor_of(log: str, folder: str) -> Answer:
    """log: the kernel's. A backing file that virt-aa-helper does not know is denied to QEMU."""
    denied = [match[2] for line in log.splitlines() if (match := DENIED.search(line))]
    ours = [name for name in denied if name.startswith(folder)]
    if not ours:
        return "ok", "AppArmor is in use and denied nothing of the lab's", ""
    file = "/etc/apparmor.d/local/abstractions/libvirt-qemu"
    cure = f"add the line `{folder}/** rwk,` to {file}, then `sudo systemctl reload apparmor`"
    return "warn", f"AppArmor denied {ours[-1]} to QEMU ({len(ours)} times since boot)", cure


def sleep(_lab: Lab) -> Answer:
    if not awake.SYSTEMD.is_dir():
        return (
            "ok",
            "no systemd: whether this machine sleeps by itself can't be told, and nothing holds it off",
            "",
        )
    if shutil.which("systemd-inhibit") is None:
        return "warn", "systemd-inhibit is missing: a run can't hold sleep off", "apt-get install systemd"
    return "ok", "a run holds sleep and idle off; closing a lid may still send this machine to sleep", ""


def python(_lab: Lab) -> Answer:
    """That it is new enough the launcher has seen already: nothing of this runs under an older one."""
    return "ok", f"Python {'.'.join(map(str, sys.version_info[:3]))} at {sys.executable}", ""


def time_sync(_lab: Lab) -> Answer:
    """The guest's clock is set by this machine's after each revert."""
    if not awake.SYSTEMD.is_dir() or shutil.which("timedatectl") is None:
        return "ok", "no systemd: whether the clock is synchronised can't be told", ""
    done = _run("timedatectl", "show", "-p", "NTPSynchronized", "--value")
    if done is not None and done.stdout.strip() == "yes":
        return "ok", "the clock is synchronised", ""
    return (
        "warn",
        "the clock is not synchronised; the guest gets its time from it",
        "sudo timedatectl set-ntp true",
    )


def gateway_port(lab: Lab) -> Answer:
    address, port = lab.guest["lab_host_address"], lab.run["run_gateway_port"]
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            return _not_bound(lab, address, port, error)
    return "ok", f"port {port} on {address} is free", ""


def _not_bound(lab: Lab, address: str, port: int, error: OSError) -> Answer:
    if error.errno == errno.EADDRNOTAVAIL:
        return "ok", f"{address} comes with the lab's network", ""
    if any(process.alive(folder) for folder in lab.gateway_dir.glob("*")):
        return "ok", f"port {port} on {address} is held by this lab's gateway", ""
    cure = f"end what holds it (`sudo ss -ltnp 'sport = {port}'`), or change run_gateway_port in run.yml"
    return "fail", f"port {port} on {address} can't be had: {error.strerror}", cure


def _run(*command: str) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
