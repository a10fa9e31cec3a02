"""HOST: is this machine ready, and if not, what to type. One function a check, one row in CHECKS."""

from __future__ import annotations

import ipaddress
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from labkit import host, image_source, plan, smoke, surroundings
from labkit.config import REPO, Lab
from labkit.errors import LabError
from labkit.gateway import keys, preflight
from labkit.guest import Hypervisor

MEMINFO = Path("/proc/meminfo")
DISK_NEEDED_GB = 12  # image 1, set 2, overlays and backups of a night, with room


@dataclass(frozen=True)
class Finding:
    """state: ok, warn (works, but read it) or fail. cure: what to type; empty when ok."""

    check: str
    state: str
    detail: str
    cure: str = ""


def examine(lab: Lab, online: bool = False) -> list[Finding]:
    """Run every check. Nothing is changed but that libvirt is started where it is not.

    online: also ask the provider, with one small paid call for each model of run.yml.
    """
    checks = CHECKS | ({"credit": _credit} if online else {})
    return [_safely(name, check, lab) for name, check in checks.items()]


def _safely(name: str, check: Callable[[Lab], tuple[str, str, str]], lab: Lab) -> Finding:
    try:
        return Finding(name, *check(lab))
    except LabError as error:
        return Finding(name, "fail", error.message, error.hint)
    except FileNotFoundError as error:
        return Finding(name, "fail", f"{error.filename} is missing", "`./lab doctor` installs what it can")
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return Finding(name, "fail", str(error), "mend that, then repeat")


def _packages(_lab: Lab) -> tuple[str, str, str]:
    wanted = (REPO / "labkit" / "apt-packages.txt").read_text().split()
    query = ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *wanted]
    answer = subprocess.run(query, capture_output=True, text=True, check=False).stdout.splitlines()
    missing = sorted(set(wanted) - {line.split()[0] for line in answer if line.endswith(" installed")})
    if missing:
        return "fail", f"missing: {' '.join(missing)}", f"apt-get install {' '.join(missing)}"
    return "ok", f"{len(wanted)} packages", ""


def _processor(lab: Lab) -> tuple[str, str, str]:
    cores, wanted = os.cpu_count() or 1, lab.guest["lab_vcpus"]
    flag = "with" if host.processor_has_virtualisation() else "without"
    detail = f"{cores} cores, {flag} hardware virtualisation; the guest gets {wanted}"
    if wanted > cores:
        return "warn", f"{detail}: more than there are", "set lab_vcpus lower in guest.yml"
    return "ok", detail, ""


def _kvm(lab: Lab) -> tuple[str, str, str]:
    """Flags and device can be there where no guest boots: what counts is one that did."""
    wanted, able = lab.guest["lab_virt"], host.processor_has_virtualisation()
    if wanted == "emulated":
        return "ok", "not used: lab_virt is emulated", ""
    if able and host.KVM.exists():
        if reason := smoke.problem("kvm", _some_kernel(lab)):
            return "fail", f"KVM does not run a guest: {reason}", "set lab_virt: emulated in guest.yml"
        return "ok", "a guest boots under it", ""
    why = f"{host.KVM} is missing" if able else "this processor offers no hardware virtualisation"
    if wanted == "kvm":
        return "fail", f"lab_virt is kvm, but {why}", "set lab_virt: auto in guest.yml"
    cure = "`sudo modprobe kvm_intel` (or kvm_amd); where that fails, the BIOS may have it switched off"
    slow = "fine for a trial; a run of hours wants a machine with it"
    return "warn", f"{why}: the guest is emulated, about 10 times slower", cure if able else slow


def _some_kernel(lab: Lab) -> Path | None:
    """A kernel to try: of a cached image, else this host's own, if it can be read."""
    found = [*lab.images_dir.glob("*/vmlinuz"), *Path("/boot").glob("vmlinuz-*")]
    return next((path for path in found if os.access(path, os.R_OK)), None)


def _memory(lab: Lab) -> tuple[str, str, str]:
    wanted = lab.guest["lab_memory_mb"]
    facts = dict(line.split(":") for line in MEMINFO.read_text().splitlines())
    available = int(facts["MemAvailable"].split()[0]) // 1024
    if _guest_runs(lab):
        return "ok", f"{available} MiB free, the guest runs", ""
    if available < wanted + 512:
        cure = "close programs, or set lab_memory_mb lower in guest.yml"
        return "fail", f"{available} MiB free, the guest takes {wanted}", cure
    return "ok", f"{available} MiB free, the guest takes {wanted}", ""


def demand_memory(lab: Lab) -> None:
    """LabError where this host has not the memory that the guest takes: QEMU's own words say less."""
    state, found, cure = _memory(lab)
    if state == "fail":
        raise LabError(f"not enough memory for the guest: {found}", cure)


def _guest_runs(lab: Lab) -> bool:
    try:
        with Hypervisor() as hypervisor:
            return hypervisor.state(lab.name) in ("running", "paused")
    except LabError:
        return False


def _disk(lab: Lab) -> tuple[str, str, str]:
    folder = lab.state_dir
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free // 2**30
    if free < DISK_NEEDED_GB:
        cure = "free some, or set lab_state_dir to a larger disk in guest.yml"
        return "fail", f"{free} GiB free below {folder}, needed {DISK_NEEDED_GB}", cure
    return "ok", f"{free} GiB free below {folder}", ""


def _libvirt(_lab: Lab) -> tuple[str, str, str]:
    host.ensure_libvirt()
    with Hypervisor() as hypervisor:
        versions = hypervisor.versions()
    return "ok", f"libvirt {versions['libvirt']}, QEMU {versions['qemu']}", ""


def _network(lab: Lab) -> tuple[str, str, str]:
    wanted = lab.guest["lab_network_cidr"]
    command = ["ip", "-4", "-o", "addr"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    with Hypervisor() as hypervisor:
        ours = hypervisor.bridge(lab.name)
    holders = [holder for holder in holders_of(wanted, answer) if holder != ours]
    if holders:
        cure = "choose another lab_network_cidr (and addresses) in guest.yml, or remove that interface"
        return "fail", f"{wanted} is in use on {', '.join(holders)}", cure
    return "ok", f"{wanted} is free or ours", ""


def holders_of(cidr: str, addresses: str) -> list[str]:
    """Interfaces of `ip -4 -o addr` whose network overlaps `cidr`."""
    wanted = ipaddress.IPv4Network(cidr)
    rows = [line.split() for line in addresses.splitlines()]
    return [
        row[1] for row in rows if len(row) > 3 and wanted.overlaps(ipaddress.IPv4Interface(row[3]).network)
    ]


def _key(lab: Lab) -> tuple[str, str, str]:
    provider = lab.run["run_provider"]
    if provider not in lab.run["run_providers"]:
        there = ", ".join(lab.run["run_providers"])
        return "fail", f"run_provider '{provider}' is not in run_providers", f"there are: {there}"
    name = lab.run["run_providers"][provider]["key_env"]
    file = plan.caller_home() / ".config" / "vm-lab" / f"{provider}.key"
    if not name or os.environ.get(name) or file.is_file():
        return "ok", f"provider {provider}", ""
    return "warn", f"no key for {provider}", f"export {name}=..., or `lab run --model rehearsal` needs none"


def _credit_not_asked(lab: Lab) -> tuple[str, str, str]:
    provider = lab.run["run_provider"]
    return "ok", f"{provider} was not asked; `lab doctor --online` does, for a fraction of a cent", ""


def _credit(lab: Lab) -> tuple[str, str, str]:
    """Key, credit, models and tools, by one small paid call for each model."""
    config = plan.gateway_config(lab, plan.make(lab), "")
    if config.provider == plan.REHEARSAL:
        return "ok", "the rehearsal asks nobody", ""
    try:
        key = keys.provider_key(config)
    except LabError as error:
        return "warn", f"{config.provider} was not asked: {error.message}", error.hint
    answers = preflight.ask_all(config, key)
    return "ok", "; ".join(answer.line() for answer in answers), ""


CHECKS: dict[str, Callable[[Lab], tuple[str, str, str]]] = {
    "packages": _packages,
    "processor": _processor,
    "kvm": _kvm,
    "memory": _memory,
    "disk": _disk,
    "libvirt": _libvirt,
    "image": image_source.check,
    "network": _network,
    "forwarding": surroundings.forwarding,
    "apparmor": surroundings.apparmor,
    "gateway port": surroundings.gateway_port,
    "sleep": surroundings.sleep,
    "time": surroundings.time_sync,
    "python": surroundings.python,
    "key": _key,
    "credit": _credit_not_asked,
}
