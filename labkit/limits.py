"""HOST: which values of guest.yml can't work, said before a guest is built from them."""

from __future__ import annotations

import ipaddress
import re
from pathlib import PurePosixPath
from typing import Any

# Folders that all labs of a host share lie beside the labs' own.
RESERVED_NAMES = ("images", "harness", "spending")
NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
USER = re.compile(r"[a-z][a-z0-9_-]{0,30}")
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")  # a provider's name, a program, a Debian package
# What such a path goes through unquoted somewhere: Ansible's templates, ssh's options, a shell.
UNFIT_FOR_PATHS = re.compile(r"[\s'\"`$%&;<>|*?{}\\,\x00-\x1f]")
# Its wrappers refuse to delete below the sandbox: there the guest's own programs would break on that, or the
# folder is gone at the next boot.
NO_SANDBOX = (
    "bin",
    "boot",
    "etc",
    "home",
    "lib",
    "lib32",
    "lib64",
    "media",
    "mnt",
    "opt",
    "root",
    "sbin",
    "srv",
)
NO_SANDBOX_BELOW = ("dev", "proc", "run", "sys", "tmp", "usr", "var")
# Without these in the image no guest comes up, or no safeguard can be put into it.
NEEDED_PACKAGES = ("cloud-init", "openssh-server", "python3", "qemu-guest-agent", "rsync", "sudo")
UNICAST_MAC = re.compile(r"[0-9a-f][02468ace](:[0-9a-f]{2}){5}")
IMAGES = ("debian-12",)
VIRT = ("auto", "kvm", "emulated")
# Variable to its lowest and highest value.
SIZES = {
    "lab_vcpus": (1, 256),
    "lab_memory_mb": (512, 4 << 20),
    "lab_disk_gb": (6, 64 << 10),
    "lab_data_disk_gb": (2, 64 << 10),
    "lab_mirror_gb": (1, 64 << 10),
    "lab_backups_keep": (1, 10_000),
    "lab_backups_keep_days": (0, 365),
}


def problem_of(guest: dict[str, Any]) -> str:
    """The first value of guest.yml that can't work, as a sentence; empty when all can."""
    problems = (check(guest) for check in (_name, _paths, _choices, _sizes, _network))
    return next((problem for problem in problems if problem), "")


def _name(guest: dict[str, Any]) -> str:
    # The name becomes a folder that `lab down` removes: an empty one or `..` would take the rest along.
    name = guest["lab_name"]
    if not NAME.fullmatch(name):
        return f"lab_name {name!r} is not a lower-case word of letters, digits and dashes"
    if name in RESERVED_NAMES:
        return f"lab_name {name} is the name of a folder that all labs share"
    if not USER.fullmatch(guest["lab_worker_user"]) or guest["lab_worker_user"] == "root":
        return f"lab_worker_user {guest['lab_worker_user']!r} is not the name of an ordinary user"
    return ""


def _paths(guest: dict[str, Any]) -> str:
    for variable in ("lab_state_dir", "lab_sandbox"):
        path = PurePosixPath(guest[variable])
        if not path.is_absolute() or len(path.parts) < 2 or ".." in path.parts:
            return f"{variable} {guest[variable]!r} is not an absolute path below /"
        if unfit := UNFIT_FOR_PATHS.search(str(path)):
            return f"{variable} {guest[variable]!r} has {unfit[0]!r} in it, which not everything takes"
    top, *below = PurePosixPath(guest["lab_sandbox"]).parts[1:]
    if top in NO_SANDBOX_BELOW or (top in NO_SANDBOX and not below):
        return f"lab_sandbox {guest['lab_sandbox']!r} is a folder of the guest's system; /sandbox is free"
    bundle = guest["lab_host_ca_bundle"]
    if bundle and not PurePosixPath(bundle).is_absolute():
        return f"lab_host_ca_bundle {bundle!r} is not an absolute path"
    return ""


def _choices(guest: dict[str, Any]) -> str:
    for variable, known in (("lab_image", IMAGES), ("lab_virt", VIRT)):
        if guest[variable] not in known:
            return f"{variable} {guest[variable]!r} is unknown; there is: {', '.join(known)}"
    mirror = guest["lab_image_mirror"]
    if mirror and ("://" not in mirror or "\n" in mirror):
        return (
            f"lab_image_mirror {mirror!r} is not the address of a Debian mirror, such as http://HOST/debian"
        )
    return _packages(guest["lab_image_packages"])


def _packages(names: list[Any]) -> str:
    for name in names:
        if not isinstance(name, str) or not WORD.fullmatch(name):
            return f"lab_image_packages has {name!r}, which is not the name of a package"
    absent = [name for name in NEEDED_PACKAGES if name not in names]
    if not any(name.startswith("linux-image-") for name in names):
        absent.append("a kernel (linux-image-cloud-amd64)")
    return f"lab_image_packages lacks {absent[0]}, without which no guest comes up" if absent else ""


def outside(values: dict[str, Any], sizes: dict[str, tuple[float, float]]) -> str:
    """The first number that is not between its two bounds, as a sentence; empty when all are."""
    for variable, (low, high) in sizes.items():
        if not low <= values[variable] <= high:  # NaN is between nothing
            return f"{variable} {values[variable]} is not between {low} and {high}"
    return ""


def _sizes(guest: dict[str, Any]) -> str:
    if problem := outside(guest, SIZES):
        return problem
    if guest["lab_mirror_gb"] >= guest["lab_data_disk_gb"]:
        return "lab_mirror_gb leaves nothing of lab_data_disk_gb for the backups"
    return ""


def _network(guest: dict[str, Any]) -> str:
    try:
        network = ipaddress.IPv4Network(guest["lab_network_cidr"])
        host, lease = (
            ipaddress.IPv4Address(guest[name]) for name in ("lab_host_address", "lab_guest_address")
        )
    except ValueError as error:
        return f"lab_network_cidr, lab_host_address or lab_guest_address: {error}"
    unusable = (network.network_address, network.broadcast_address)
    if host == lease or any(one not in network or one in unusable for one in (host, lease)):
        return f"lab_host_address {host} and lab_guest_address {lease} are not two addresses of {network}"
    if not UNICAST_MAC.fullmatch(guest["lab_guest_mac"].lower()):
        return f"lab_guest_mac {guest['lab_guest_mac']!r} is not the address of one network card"
    return ""
