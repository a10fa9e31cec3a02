"""HOST: set-up where nothing is installed: our own files ask for what `./lab` needs, or name it.

The files git knows are copied into a bare Debian. The guest itself boots outside it (tests/guest).
The tests stand on each other in this order: what root installs, the next one finds.
"""

import json
import shlex

import pytest

pytestmark = pytest.mark.timeout(1800)
# What a folder without an init system, or this machine around it, may rightly be told to mend.
OF_THE_PLACE = {"processor", "kvm", "memory", "disk", "network", "gateway port", "apparmor", "time", "key"}


def findings(said) -> dict[str, dict]:
    assert said.code in (0, 3) and "Traceback" not in said.err + said.out, said
    return {finding["check"]: finding for finding in json.loads(said.out)}


def ours_are_fine(found: dict[str, dict]) -> None:
    failed = {check for check, finding in found.items() if finding["state"] == "fail"}
    assert not failed - OF_THE_PLACE, [found[check] for check in failed]
    assert all(found[check]["cure"] for check in failed), "each failure says what to type"
    assert not [finding for finding in found.values() if "is missing" in finding["detail"]], found


def refused_in_one_sentence(said) -> str:
    """The last sentence and its cure; nothing of ours fell over."""
    assert said.code == 3 and "Traceback" not in said.err, said
    told = [line for line in said.err.splitlines() if line.strip()]
    assert told[-2].startswith("lab: ") and told[-1].startswith("     "), said
    return told[-2]


def test_without_root_and_sudo_a_bare_host_is_refused_and_nothing_is_installed(roots_host):
    said = roots_host.lab("ben", "doctor")
    assert "needs root, and there is no sudo" in refused_in_one_sentence(said)
    assert not list((roots_host.root / "usr/bin").glob("python3*"))


@pytest.mark.parametrize("words", ["runs", "query list"])
def test_without_python_reading_runs_says_that_python_is_missing(roots_host, words):
    assert "no Python 3.11" in refused_in_one_sentence(roots_host.lab("ben", words))


def test_root_types_doctor_and_all_that_is_ours_is_installed(roots_host):
    said = roots_host.lab("root", "doctor --json")
    assert "installing" in said.err and "making the virtual environment" in said.err
    found = findings(said)
    assert found["packages"]["state"] == found["python"]["state"] == found["image"]["state"] == "ok"
    ours_are_fine(found)


def test_the_table_a_person_sees_names_every_check_and_installs_nothing_again(roots_host):
    said = roots_host.lab("root", "doctor")
    assert said.code in (0, 3) and "installing" not in said.err, said
    assert all(word in said.out for word in ("packages", "libvirt", "image", "python")), said


@pytest.mark.parametrize("words", ["runs", "query list"])
def test_a_plain_user_reads_runs_without_root(roots_host, words):
    said = roots_host.lab("ben", words)
    assert said.code == 0 and "root" not in said.err, said


def test_a_user_without_sudo_is_told_so_in_one_sentence(roots_host):
    assert "needs root, and there is no sudo" in refused_in_one_sentence(roots_host.lab("ben", "doctor"))


PROGRAMS = (
    "mmdebstrap qemu-img qemu-system-x86_64 sfdisk mke2fs debugfs ssh ssh-keygen libvirtd virtlogd tini"
)


@pytest.mark.parametrize("program", PROGRAMS.split())
def test_a_program_that_the_kit_calls_is_there(roots_host, program):
    assert roots_host.typed("root", f"command -v {program}").code == 0


def test_the_dry_road_to_a_guest_meets_no_missing_part(roots_host):
    said = roots_host.lab("root", "up --check --json")
    assert said.code in (0, 3) and "Traceback" not in said.err, said
    assert "is missing" not in said.err and "not found" not in said.err, said


def test_the_image_is_bootstrapped_with_what_was_installed(roots_host):
    """The domain is left out: its network would be this machine's."""
    program = "from labkit import config, playbooks; playbooks.run('../tests/soak/image', config.load())"
    line = f"cd {roots_host.clone('root')} && .venv/bin/python -P -c {shlex.quote(program)}"
    line += " && cd /var/lib/vm-lab/images/debian-12-*/ && sha256sum --check SHA256SUMS"
    said = roots_host.typed("root", line, seconds=900)
    assert said.code == 0 and "disk.qcow2: OK" in said.out, said


def test_a_collected_run_can_be_described_without_git(roots_host):
    assert roots_host.typed("root", "command -v git").code != 0
    program = "from labkit import collect; print(collect._kit()['commit'])"
    said = roots_host.typed(
        "root", f"cd {roots_host.clone('root')} && .venv/bin/python -P -c {shlex.quote(program)}"
    )
    assert said.out.strip() == "None", said


def test_a_user_with_sudo_is_told_what_runs_as_root_and_it_works(annas_host):
    said = annas_host.lab("anna", "doctor --json")
    assert "lab: needs root: sudo apt-get" in said.err, said
    assert "needs root: sudo lab doctor" in said.err, said
    ours_are_fine(findings(said))
    owner = annas_host.typed("root", "stat -c %U /home/anna/vm-lab/.venv").out.strip()
    assert owner == "anna", "set up by her, for her"
