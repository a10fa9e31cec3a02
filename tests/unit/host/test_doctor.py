"""TESTS: each thing that can be wrong with a machine has a state, a reason and what to type."""

from __future__ import annotations

import os

import pytest

from labkit import doctor, guest
from labkit.doctor import CHECKS, Finding, holders_of
from labkit.errors import LabError

ADDRESSES = """\
1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever preferred_lft forever
2: eth0    inet 10.1.2.3/16 brd 10.1.255.255 scope global eth0\\       valid_lft forever
3: virbr1    inet 192.168.150.1/24 brd 192.168.150.255 scope global virbr1\\  valid_lft forever
"""


@pytest.fixture
def libvirt(monkeypatch):
    """libvirt's test driver in place of the machine's own."""
    monkeypatch.setattr(guest.Hypervisor.__init__, "__defaults__", ("test:///default",))


def find(lab, name: str) -> Finding:
    return doctor._safely(name, CHECKS[name], lab)


def test_every_finding_that_is_not_ok_says_what_to_type(lab, libvirt):
    findings = doctor.examine(lab)
    assert [finding.check for finding in findings] == list(CHECKS)
    for finding in findings:
        assert finding.state in ("ok", "warn", "fail") and finding.detail
        assert finding.state == "ok" or finding.cure, finding


def test_too_little_memory_for_the_guest_fails_and_names_the_variable(make_lab, libvirt):
    found = find(make_lab(guest={"lab_memory_mb": 1 << 22}), "memory")
    assert found.state == "fail" and "lab_memory_mb" in found.cure


def test_kvm_that_is_asked_for_and_not_there_fails(make_lab, monkeypatch):
    monkeypatch.setattr(doctor.host, "processor_has_virtualisation", lambda: False)
    assert find(make_lab(guest={"lab_virt": "kvm"}), "virtualisation").state == "fail"
    assert find(make_lab(), "virtualisation").state == "warn"


def test_a_full_disk_fails_and_names_the_folder(lab, monkeypatch):
    monkeypatch.setattr(doctor, "DISK_NEEDED_GB", 1 << 30)
    found = find(lab, "disk")
    assert found.state == "fail" and "lab_state_dir" in found.cure


def test_a_mirror_that_is_set_needs_no_debian_sources(make_lab):
    assert find(make_lab(guest={"lab_image_mirror": "http://x.invalid/debian"}), "image").state == "ok"


def test_a_cached_image_needs_no_debian_sources(lab):
    folder = lab.images_dir / "debian-12-0123456789abcdef"
    folder.mkdir(parents=True)
    (folder / "SHA256SUMS").touch()
    assert find(lab, "image").detail == "the image is in the cache"


def scripted(folder, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_a_host_whose_sources_have_no_debian_is_told_what_to_do(lab, tmp_path, monkeypatch):
    scripted(tmp_path, "apt-get", "echo 'deb http://archive.ubuntu.com/ubuntu noble'")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    found = find(lab, "image")
    assert found.state == "fail" and "lab_image_mirror" in found.cure


def test_a_host_without_the_tools_gets_a_finding_and_no_traceback(lab, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("packages", "image", "network"):
        found = find(lab, name)
        assert found.state == "fail" and "missing" in found.detail and found.cure


def test_missing_packages_are_named_with_the_command_that_installs_them(lab, tmp_path, monkeypatch):
    scripted(tmp_path, "dpkg-query", "echo 'qemu-utils installed'")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    found = find(lab, "packages")
    assert found.state == "fail" and "qemu-system-x86" in found.cure and "qemu-utils" not in found.cure


@pytest.mark.parametrize(
    ("cidr", "holders"),
    [
        ("192.168.150.0/24", ["virbr1"]),
        ("192.168.150.128/25", ["virbr1"]),
        ("192.168.0.0/16", ["virbr1"]),
        ("10.1.9.0/24", ["eth0"]),
        ("192.168.151.0/24", []),
    ],
)
def test_a_network_that_overlaps_another_of_the_host_is_found(cidr, holders):
    assert holders_of(cidr, ADDRESSES) == holders


def test_a_missing_key_is_a_warning_that_names_the_variable(lab, tmp_path, monkeypatch):
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    monkeypatch.setattr(doctor.plan, "caller_home", lambda: tmp_path)
    found = find(lab, "key")
    assert found.state == "warn" and "OPENROUTER_API_KEY" in found.cure
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-test")
    assert find(lab, "key").state == "ok"


def test_an_unknown_provider_fails(make_lab):
    found = find(make_lab(run={"run_provider": "closedrouter"}), "key")
    assert found.state == "fail" and "openrouter" in found.cure


def test_a_check_that_fails_with_a_sentence_becomes_a_finding_with_its_cure(lab):
    def broken(_lab):
        raise LabError("it is broken", "type this")

    assert doctor._safely("x", broken, lab) == Finding("x", "fail", "it is broken", "type this")
