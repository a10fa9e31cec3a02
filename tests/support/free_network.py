"""TESTS: addresses for a lab of the tests' own that nothing on this host uses."""

from __future__ import annotations

import subprocess

from labkit.doctor import holders_of


def free_network(first: int) -> dict[str, str]:
    """Values for guest.yml: the first 192.168.N.0/24 from N = first on that no interface has.

    A bridge stays behind where libvirt was killed, and so may another lab of the person who tests.
    """
    command = ["ip", "-4", "-o", "addr"]
    addresses = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    free = (third for third in range(first, 255) if not holders_of(f"192.168.{third}.0/24", addresses))
    third = next(free)
    return {
        "lab_network_cidr": f"192.168.{third}.0/24",
        "lab_host_address": f"192.168.{third}.1",
        "lab_guest_address": f"192.168.{third}.10",
        "lab_guest_mac": f"52:54:00:1a:{third:02x}:10",
    }
