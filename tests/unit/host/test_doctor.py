"""TESTS: each thing that can be wrong with a machine has a state, a reason and what to type."""

from __future__ import annotations

import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from labkit import doctor, guest, image_source
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
    with pytest.raises(LabError, match="not enough memory for the guest") as caught:
        doctor.demand_memory(make_lab(guest={"lab_memory_mb": 1 << 22}))
    assert "lab_memory_mb" in caught.value.hint


@pytest.fixture
def processor(tmp_path, monkeypatch):
    """A processor with or without the flags, a machine with or without /dev/kvm."""

    def make(flags: str, kvm: bool) -> None:
        (tmp_path / "cpuinfo").write_text(f"processor : 0\nflags : fpu {flags} sse2\n")
        if kvm:
            (tmp_path / "kvm").touch()
        monkeypatch.setattr(doctor.host, "CPUINFO", tmp_path / "cpuinfo")
        monkeypatch.setattr(doctor.host, "KVM", tmp_path / "kvm")

    return make


@pytest.mark.parametrize(
    ("flags", "kvm", "wanted", "state", "said"),
    [
        ("", False, "auto", "warn", "no hardware virtualisation: the guest is emulated"),
        ("", True, "kvm", "fail", "lab_virt is kvm, but this processor offers no"),
        ("vmx", False, "auto", "warn", "is missing: the guest is emulated"),
        ("svm", False, "kvm", "fail", "is missing"),
        ("vmx", True, "emulated", "ok", "not used"),
    ],
)
def test_each_state_of_kvm_is_told_apart(make_lab, processor, flags, kvm, wanted, state, said):
    processor(flags, kvm)
    found = find(make_lab(guest={"lab_virt": wanted}), "kvm")
    assert found.state == state and said in found.detail and (state == "ok" or found.cure)
    assert "BIOS" in found.cure or not (flags and wanted == "auto")


@pytest.mark.parametrize(("said", "state"), [("", "ok"), ("the kernel is silent", "fail")])
def test_kvm_counts_when_a_guest_boots_under_it(lab, processor, monkeypatch, said, state):
    processor("vmx", kvm=True)
    monkeypatch.setattr(doctor.smoke, "problem", lambda _accelerator, _kernel: said)
    found = find(lab, "kvm")
    assert found.state == state and said in found.detail


def test_a_guest_with_more_processors_than_the_host_is_a_warning(make_lab, processor):
    processor("svm", kvm=True)
    assert "with hardware virtualisation" in find(make_lab(guest={"lab_vcpus": 1}), "processor").detail
    found = find(make_lab(guest={"lab_vcpus": 256}), "processor")
    assert found.state == "warn" and "lab_vcpus" in found.cure


@pytest.mark.parametrize(("free_mib", "state"), [(6144 + 512, "ok"), (6144, "fail")])
def test_memory_is_said_with_both_numbers(lab, libvirt, tmp_path, monkeypatch, free_mib, state):
    (tmp_path / "meminfo").write_text(f"MemTotal: 99999999 kB\nMemAvailable: {free_mib * 1024} kB\n")
    monkeypatch.setattr(doctor, "MEMINFO", tmp_path / "meminfo")
    found = find(lab, "memory")
    assert found.state == state and f"{free_mib} MiB free, the guest takes 6144" in found.detail


def test_libvirt_that_does_not_answer_is_a_finding_with_its_cure(lab, monkeypatch):
    def broken() -> None:
        raise LabError("libvirt was started but does not answer", "`libvirtd` run by hand shows why")

    monkeypatch.setattr(doctor.host, "ensure_libvirt", broken)
    found = find(lab, "libvirt")
    assert (found.state, found.cure) == ("fail", "`libvirtd` run by hand shows why")


def test_libvirt_that_answers_is_said_with_its_versions(lab, libvirt, monkeypatch):
    monkeypatch.setattr(doctor.host, "ensure_libvirt", lambda: False)
    found = find(lab, "libvirt")
    assert found.state == "ok" and "libvirt " in found.detail and "QEMU " in found.detail


def test_a_network_of_the_host_in_the_way_of_the_labs_is_named(make_lab, libvirt, tmp_path, monkeypatch):
    scripted(tmp_path, "ip", f"cat <<'END'\n{ADDRESSES}END")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    found = find(make_lab(), "network")
    assert found.state == "fail" and "virbr1" in found.detail and "lab_network_cidr" in found.cure
    other = {"lab_network_cidr": "192.168.199.0/24", "lab_host_address": "192.168.199.1"}
    assert find(make_lab(guest=other | {"lab_guest_address": "192.168.199.10"}), "network").state == "ok"


def test_a_full_disk_fails_and_names_the_folder(lab, monkeypatch):
    monkeypatch.setattr(doctor, "DISK_NEEDED_GB", 1 << 30)
    found = find(lab, "disk")
    assert found.state == "fail" and "lab_state_dir" in found.cure


class Mirror(BaseHTTPRequestHandler):
    """A package mirror that has the suite's first file and nothing else."""

    def do_GET(self) -> None:
        found = self.path == "/debian/dists/bookworm/InRelease"
        self.send_response(200 if found else 404)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def mirror(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


needs_apt = pytest.mark.skipif(not image_source.APT_HELPER.is_file(), reason="no apt here")


@needs_apt
def test_a_mirror_is_asked_whether_it_has_the_suite(make_lab, mirror):
    assert find(make_lab(guest={"lab_image_mirror": f"{mirror}/debian"}), "image").state == "ok"
    found = find(make_lab(guest={"lab_image_mirror": f"{mirror}/ubuntu/"}), "image")
    assert found.state == "fail" and "404" in found.detail and "lab_image_mirror" in found.cure


@needs_apt
def test_a_mirror_that_is_not_there_is_a_failure_in_apts_words(make_lab, mirror, free_port):
    url = f"http://127.0.0.1:{free_port}/debian"
    found = find(make_lab(guest={"lab_image_mirror": url}), "image")
    assert found.state == "fail" and f"{url} does not answer" in found.detail
    assert "connect" in found.detail.lower()


@needs_apt
def test_a_mirror_that_accepts_and_says_nothing_is_given_up(make_lab, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(image_source, "ANSWER_SECONDS", 1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/debian"
        found = find(make_lab(guest={"lab_image_mirror": url}), "image")
    assert found.state == "fail" and "does not answer" in found.detail


@needs_apt
def test_the_mirror_of_this_hosts_own_sources_is_the_one_that_is_asked(lab, mirror, tmp_path, monkeypatch):
    updates = "echo 'http://x.invalid/d bookworm-updates'"
    scripted(tmp_path, "apt-get", f"{updates}; echo '{mirror}/debian bookworm'")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert find(lab, "image").detail == f"{mirror}/debian answers"


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
    scripted(tmp_path, "apt-get", "echo 'http://archive.ubuntu.com/ubuntu noble'")
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
