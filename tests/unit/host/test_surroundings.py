"""TESTS: doctor's look at what surrounds the kit: KVM that boots, Docker, AppArmor, ports, the provider."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from pathlib import Path

import pytest

from labkit import doctor, plan, smoke, surroundings
from labkit.errors import LabError
from labkit.gateway import preflight

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
    ("program", "seconds", "said"),
    [
        ("echo '[    0.000000] Linux version 6.1.0'; exit 0", 30, ""),
        ("echo '[    0.000000] Linux version 6.1.0'; exec sleep 60", 4, ""),
        ("exec sleep 60", 1, "a guest did not boot within 1 s"),
        ("echo 'Could not access KVM kernel module' >&2; exit 1", 30, "Could not access KVM kernel module"),
    ],
)
def test_a_kernel_counts_once_it_speaks(tmp_path, monkeypatch, program, seconds, said):
    script = tmp_path / "qemu-system-x86_64"
    script.write_text(f"#!/bin/sh\n{program}\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert smoke.problem("kvm", tmp_path / "vmlinuz", seconds=seconds) == said


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


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Puts a program of that name before all others, or makes the PATH hold nothing else."""

    def make(name: str, text: str, alone: bool = False) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
        rest = "" if alone else f"{os.pathsep}{os.environ['PATH']}"
        monkeypatch.setenv("PATH", f"{tmp_path}{rest}")

    return make


@pytest.mark.parametrize(
    ("iptables", "state", "said"),
    [
        ("echo '-P FORWARD DROP'; echo '-A FORWARD -j DOCKER-USER'", "warn", "Docker"),
        ("echo '-P FORWARD ACCEPT'", "ok", "not dropped"),
        ("echo 'Permission denied' >&2; exit 4", "warn", "can't be read"),
    ],
)
def test_forwarding_is_read_from_iptables(lab, program, iptables, state, said):
    program("iptables", iptables)
    found = surroundings.forwarding(lab)
    assert found[0] == state and said in found[1] and (state == "ok" or found[2])


def test_a_host_without_iptables_drops_nothing_with_it(lab, program):
    program("something-else", "exit 0", alone=True)
    assert surroundings.forwarding(lab) == ("ok", "no iptables here", "")


@pytest.mark.parametrize(
    ("enabled", "dmesg", "state", "said"),
    [
        ("N", "exit 1", "ok", "not in use"),
        ("Y", "exit 1", "warn", "log can't be read"),
        ("Y", "echo nothing of interest", "ok", "denied nothing"),
        ("Y", f"echo '{DENIAL.strip().replace(chr(39), '')}'", "warn", "lab/set/system.qcow2"),
    ],
)
def test_apparmor_is_read_from_the_kernel(
    make_lab, program, tmp_path, monkeypatch, enabled, dmesg, state, said
):
    (tmp_path / "enabled").write_text(f"{enabled}\n")
    monkeypatch.setattr(surroundings, "APPARMOR", tmp_path / "enabled")
    program("dmesg", dmesg)
    found = surroundings.apparmor(make_lab(guest={"lab_state_dir": "/var/lib/vm-lab"}))
    assert found[0] == state and said in found[1] and (state == "ok" or found[2])


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    (tmp_path / "systemd").mkdir()
    monkeypatch.setattr(surroundings.awake, "SYSTEMD", tmp_path / "systemd")


@pytest.mark.parametrize(
    ("timedatectl", "state"), [("echo yes", "ok"), ("echo no", "warn"), ("echo failed >&2; exit 1", "warn")]
)
def test_a_clock_that_nobody_sets_is_a_warning(lab, program, systemd, timedatectl, state):
    program("timedatectl", timedatectl)
    found = surroundings.time_sync(lab)
    assert found[0] == state and (state == "ok" or "set-ntp true" in found[2])


def test_whether_sleep_can_be_held_off_is_told(lab, program, systemd):
    program("systemd-inhibit", "exit 0")
    assert surroundings.sleep(lab)[0] == "ok" and "lid" in surroundings.sleep(lab)[1]
    program("other", "exit 0", alone=True)
    (Path(os.environ["PATH"]) / "systemd-inhibit").unlink()
    state, said, cure = surroundings.sleep(lab)
    assert state == "warn" and "can't hold sleep off" in said and "systemd" in cure


def test_without_systemd_neither_sleep_nor_clock_is_claimed_to_be_known(lab, tmp_path, monkeypatch):
    monkeypatch.setattr(surroundings.awake, "SYSTEMD", tmp_path / "none")
    assert "can't be told" in surroundings.sleep(lab)[1] and "can't be told" in surroundings.time_sync(lab)[1]


def test_the_python_that_runs_this_is_named(lab):
    assert sys.executable in surroundings.python(lab)[1]


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """The paid calls that were made; no key is anywhere, until a test gives one."""
    made = []
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    monkeypatch.setattr(plan, "caller_home", lambda: tmp_path)
    answer = preflight.Answer("a model", True, 0.5, 0.00002)
    monkeypatch.setattr(preflight, "ask_all", lambda config, key: made.append((config, key)) or [answer])
    monkeypatch.setattr(doctor, "CHECKS", {"credit": doctor._credit_not_asked})
    return made


def test_credit_is_asked_for_only_when_told_and_only_with_a_key(lab, calls, monkeypatch):
    (found,) = doctor.examine(lab)
    assert found.state == "ok" and "--online" in found.detail
    (found,) = doctor.examine(lab, online=True)
    assert found.state == "warn" and "no key for provider openrouter" in found.detail and found.cure
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-test")
    assert doctor.examine(lab)[0].state == "ok" and calls == []
    (found,) = doctor.examine(lab, online=True)
    assert found.state == "ok" and "$0.000020" in found.detail
    assert [key for _, key in calls] == ["sk-test"]


def test_an_account_without_credit_is_a_failure_with_its_cure(lab, calls, monkeypatch):
    def refuse(_config, _key):
        raise LabError("the account is out of credit (402)", "add credit there")

    monkeypatch.setattr(preflight, "ask_all", refuse)
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-test")
    (found,) = doctor.examine(lab, online=True)
    assert (found.state, found.cure) == ("fail", "add credit there")


def test_the_rehearsal_is_not_asked(make_lab, calls):
    (found,) = doctor.examine(make_lab(run={"run_model": "rehearsal"}), online=True)
    assert found.state == "ok" and "asks nobody" in found.detail and calls == []
