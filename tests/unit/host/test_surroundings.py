"""TESTS: doctor's look at what surrounds the kit: KVM that boots, Docker, AppArmor, ports, the provider."""

from __future__ import annotations

import os
import shutil
import socket

import pytest

from labkit import doctor, plan, smoke, surroundings
from labkit.errors import LabError

CIDR = "192.168.150.0/24"
DOCKER = "-P FORWARD DROP\n-A FORWARD -j DOCKER-USER\n-A FORWARD -j DOCKER-ISOLATION-STAGE-1\n"
DENIAL = (
    'audit: type=1400 apparmor="DENIED" operation="open" class="file" profile="libvirt-5a1d0c1e"'
    ' name="/var/lib/vm-lab/lab/set/system.qcow2" pid=4711 comm="qemu-system-x86" requested_mask="r"\n'
)
needs_qemu = pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="no QEMU here")


@needs_qemu
def test_an_emulated_guest_boots_and_an_accelerator_that_is_none_is_said():
    assert smoke.problem("tcg") == ""
    assert "nonsense" in smoke.problem("nonsense")


@needs_qemu
def test_a_guest_that_does_not_boot_in_time_is_given_up(monkeypatch):
    monkeypatch.setattr(smoke, "SECTOR", smoke.SECTOR[:510] + b"\0\0")
    assert "did not boot within" in smoke.problem("tcg", seconds=2)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("echo '[    0.000000] Linux version 6.1.0'; exit 0", ""),
        ("echo '[    0.000000] Linux version 6.1.0'; exec sleep 60", ""),
        ("exec sleep 60", "a guest did not boot within 1 s"),
        ("echo 'Could not access KVM kernel module' >&2; exit 1", "Could not access KVM kernel module"),
    ],
)
def test_a_kernel_counts_once_it_speaks(tmp_path, monkeypatch, program, said):
    script = tmp_path / "qemu-system-x86_64"
    script.write_text(f"#!/bin/sh\n{program}\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert smoke.problem("kvm", tmp_path / "vmlinuz", seconds=1) == said


@pytest.mark.parametrize(
    ("rules", "state"),
    [
        ("-P FORWARD ACCEPT\n", "ok"),
        (DOCKER, "warn"),
        (DOCKER + "-A FORWARD -j LIBVIRT_FWO\n", "ok"),
        (DOCKER + f"-A FORWARD -s {CIDR} -j ACCEPT\n", "ok"),
    ],
)
def test_dockers_drop_is_noticed_where_the_guests_are_not_let_through(rules, state):
    assert surroundings.forwarding_of(rules, CIDR)[0] == state


def test_the_cure_for_dockers_drop_goes_into_the_chain_that_docker_leaves_to_the_user():
    _, said, cure = surroundings.forwarding_of(DOCKER, CIDR)
    assert "Docker" in said and cure.count(f"DOCKER-USER -{'s'} {CIDR}") == 1 and f"-d {CIDR}" in cure


def test_a_denied_disk_of_the_lab_is_named_and_those_of_others_are_not():
    state, said, cure = surroundings.apparmor_of(DENIAL, "/var/lib/vm-lab")
    assert state == "warn" and "lab/set/system.qcow2" in said and "/var/lib/vm-lab/** rwk," in cure
    assert surroundings.apparmor_of(DENIAL, "/srv/labs")[0] == "ok"


@pytest.fixture
def lab_here(make_lab):
    """A lab whose gateway would listen on a loopback port."""

    def make(port: int):
        addresses = {"lab_host_address": "127.0.0.1", "lab_guest_address": "127.0.0.9"}
        return make_lab(
            guest={"lab_network_cidr": "127.0.0.0/8", **addresses}, run={"run_gateway_port": port}
        )

    return make


def test_a_taken_gateway_port_is_a_failure_that_says_how_to_find_the_holder(lab_here, free_port):
    lab = lab_here(free_port)
    assert surroundings.gateway_port(lab)[0] == "ok"
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", free_port))
        holder.listen()
        state, said, cure = surroundings.gateway_port(lab)
    assert (
        state == "fail" and f"port {free_port}" in said and "ss -ltnp" in cure and "run_gateway_port" in cure
    )


def test_an_address_that_is_not_there_yet_is_no_fault(make_lab):
    addresses = {"lab_host_address": "198.51.100.1", "lab_guest_address": "198.51.100.10"}
    lab = make_lab(guest={"lab_network_cidr": "198.51.100.0/24", **addresses})
    assert surroundings.gateway_port(lab)[0] == "ok"


def test_the_provider_is_asked_only_when_told(lab, monkeypatch):
    monkeypatch.setattr(doctor, "CHECKS", {})
    monkeypatch.setattr(doctor, "ONLINE", {"provider": lambda _lab: ("ok", "asked", "")})
    assert doctor.examine(lab) == []
    assert [finding.detail for finding in doctor.examine(lab, online=True)] == ["asked"]


def test_a_provider_that_does_not_take_the_key_is_a_finding_with_its_cure(lab, monkeypatch, tmp_path):
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    monkeypatch.setattr(plan, "caller_home", lambda: tmp_path)
    with pytest.raises(LabError, match="no key for provider openrouter"):
        doctor._provider(lab)


def test_the_rehearsal_is_not_asked(make_lab):
    state, said, _ = doctor._provider(make_lab(run={"run_model": "rehearsal"}))
    assert state == "ok" and "asks nobody" in said
