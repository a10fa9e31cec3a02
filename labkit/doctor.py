"""HOST: is this machine ready, and if not, what to type. One function a check, one row in CHECKS."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from labkit import host, session
from labkit.config import REPO, Lab
from labkit.errors import LabError
from labkit.guest import Hypervisor

DISK_NEEDED_GB = 12  # image 1, set 2, overlays and backups of a night, with room
APT_LISTS = "deb $(REPO_URI) $(RELEASE)"


@dataclass(frozen=True)
class Finding:
    """state: ok, warn (works, but read it) or fail. cure: what to type; empty when ok."""

    check: str
    state: str
    detail: str
    cure: str = ""


def examine(lab: Lab) -> list[Finding]:
    """Run every check; none changes anything."""
    return [_safely(name, check, lab) for name, check in CHECKS.items()]


def _safely(name: str, check: Callable[[Lab], tuple[str, str, str]], lab: Lab) -> Finding:
    try:
        return Finding(name, *check(lab))
    except LabError as error:
        return Finding(name, "fail", error.message, error.hint)
    except (OSError, subprocess.SubprocessError) as error:
        return Finding(name, "fail", str(error), "")


def _packages(_lab: Lab) -> tuple[str, str, str]:
    wanted = (REPO / "labkit" / "apt-packages.txt").read_text().split()
    query = ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *wanted]
    answer = subprocess.run(query, capture_output=True, text=True, check=False).stdout.splitlines()
    missing = sorted(set(wanted) - {line.split()[0] for line in answer if line.endswith(" installed")})
    if missing:
        return "fail", f"missing: {' '.join(missing)}", f"apt-get install {' '.join(missing)}"
    return "ok", f"{len(wanted)} packages", ""


def _virtualisation(lab: Lab) -> tuple[str, str, str]:
    wanted = lab.guest["lab_virt"]
    if host.processor_has_virtualisation() and host.KVM.exists():
        return "ok", "KVM", ""
    if wanted == "kvm":
        return "fail", "lab_virt is kvm, but this processor offers none", "set lab_virt: auto in guest.yml"
    return (
        "warn",
        "no hardware virtualisation: the guest is emulated, about 10 times slower",
        "fine for a trial",
    )


def _memory(lab: Lab) -> tuple[str, str, str]:
    wanted = lab.guest["lab_memory_mb"]
    facts = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available = int(facts["MemAvailable"].split()[0]) // 1024
    if available < wanted + 512:
        cure = "close programs, or set lab_memory_mb lower in guest.yml"
        return "fail", f"{available} MiB free, the guest takes {wanted}", cure
    return "ok", f"{available} MiB free, the guest takes {wanted}", ""


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
    with Hypervisor() as hypervisor:
        versions = hypervisor.versions()
    return "ok", f"libvirt {versions['libvirt']}, QEMU {versions['qemu']}", ""


def _image_source(lab: Lab) -> tuple[str, str, str]:
    mirror = lab.guest["lab_image_mirror"]
    if mirror or list(lab.images_dir.glob(f"{lab.guest['lab_image']}-*/SHA256SUMS")):
        return "ok", "a mirror is set" if mirror else "the image is in the cache", ""
    query = ["apt-get", "indextargets", "--format", APT_LISTS, "Created-By: Packages", "Origin: Debian"]
    answer = subprocess.run(query, capture_output=True, text=True, check=False).stdout
    if " bookworm" not in answer:
        cure = (
            "set lab_image_mirror in guest.yml to a Debian mirror you can reach (or `apt-get update` first)"
        )
        return "fail", "this host's package sources have no Debian 12", cure
    return "ok", "this host's own package mirror", ""


def _network(lab: Lab) -> tuple[str, str, str]:
    address = lab.guest["lab_host_address"]
    routes = subprocess.run(["ip", "-4", "-o", "addr"], capture_output=True, text=True, check=False).stdout
    holders = [line.split()[1] for line in routes.splitlines() if f" {address}/" in line]
    with Hypervisor() as hypervisor:
        ours = hypervisor.network(lab.name) is not None
    if holders and not ours:
        cure = "choose another lab_network_cidr (and addresses) in guest.yml"
        return "fail", f"{address} is taken by {', '.join(holders)}", cure
    return "ok", f"{lab.guest['lab_network_cidr']} is free or ours", ""


def _key(lab: Lab) -> tuple[str, str, str]:
    provider = lab.run["run_provider"]
    name = lab.run["run_providers"].get(provider, {}).get("key_env", "")
    file = session.caller_home() / ".config" / "vm-lab" / f"{provider}.key"
    if not name or os.environ.get(name) or file.is_file():
        return "ok", f"provider {provider}", ""
    return "warn", f"no key for {provider}", f"export {name}=..., or `lab run --model rehearsal` needs none"


CHECKS: dict[str, Callable[[Lab], tuple[str, str, str]]] = {
    "packages": _packages,
    "virtualisation": _virtualisation,
    "memory": _memory,
    "disk": _disk,
    "libvirt": _libvirt,
    "image": _image_source,
    "network": _network,
    "key": _key,
}
