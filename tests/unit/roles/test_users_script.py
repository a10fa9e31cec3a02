"""HOST: runs the users role's script with an /etc of its own; account and package tools are scripted."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "roles/users/files/users.sh"
TOOLS = {
    "useradd": 'for name do :; done; echo "$name:x:7777:7777::/home/$name:/bin/bash" >>/etc/passwd\n'
    'echo "$name:!:1::::::" >>/etc/shadow',
    "usermod": 'echo "usermod $*" >>"$LAB/calls"',
    "visudo": "exit ${VISUDO:-0}",
    "debconf-set-selections": 'printf "Name: debconf/frontend\\nValue: Noninteractive\\n" '
    '>"$LAB/debconf/config.dat"',
    "update-ca-certificates": "cd /usr/local/share/ca-certificates/lab-host\n"
    "cat *.crt >>/etc/ssl/certs/ca-certificates.crt",
    "systemctl": 'echo "systemctl $*" >>"$LAB/calls"',
    "hostname": "echo the-guest",
}
SESSION = """
set -e
export LAB="$1" PATH="$1/bin:$PATH"
mount --bind "$LAB/etc" /etc
mount --bind "$LAB/share" /usr/local/share
mount --bind "$LAB/debconf" /var/cache/debconf
users() { sh -s -- worker "" /sandbox/tmp /etc/bundle.pem "$1" apt-daily.timer man-db.timer <"$SCRIPT"; }
"""


def certificate(word: str) -> str:
    return f"-----BEGIN CERTIFICATE-----\n{word}\n{word}==\n-----END CERTIFICATE-----\n"


@pytest.fixture
def guest(tmp_path: Path):
    """Returns run(shell): `users yes|no` in it runs the script, with two new certificates to be trusted."""
    for folder in ("bin", "share", "debconf", "etc/ssl/certs", "etc/systemd/system"):
        (tmp_path / folder).mkdir(parents=True)
    for name, text in TOOLS.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    etc = tmp_path / "etc"
    for name in ("passwd", "group", "nsswitch.conf", "ld.so.cache"):
        (etc / name).write_bytes(Path("/etc", name).read_bytes())
    if (awk := Path("/etc/alternatives/awk")).is_symlink():
        (etc / "alternatives").mkdir()
        (etc / "alternatives/awk").symlink_to(awk.readlink())
    (etc / "shadow").write_text("root:*:1::::::\n")
    (etc / "hosts").write_text("127.0.0.1 localhost\n")
    (etc / "ssl/certs/ca-certificates.crt").write_text(certificate("known"))
    (etc / "bundle.pem").write_text(
        certificate("known") + "# a remark\n" + certificate("new") + certificate("newer")
    )

    def run(shell: str) -> subprocess.CompletedProcess:
        script = f'SCRIPT="{SCRIPT}"\n{SESSION}\n{shell}'
        command = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh", str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, timeout=30)

    probe = run("true")
    if probe.returncode:
        pytest.skip(f"no mount namespace can be had here: {probe.stderr.strip()}")
    return run


def test_a_second_time_changes_nothing(guest) -> None:
    first, second = guest("users no"), guest("users no")
    assert first.returncode == 0, first.stderr
    assert "changed: account worker" in first.stdout and "changed: apt-daily.timer is masked" in first.stdout
    assert (second.returncode, second.stdout) == (0, "")


def test_predicting_names_the_same_changes_and_makes_none(guest, tmp_path: Path) -> None:
    predicted = guest("users yes")
    assert list((tmp_path / "share").iterdir()) == [] and not (tmp_path / "calls").exists()
    assert predicted.stdout == guest("users no").stdout


def test_only_certificates_that_are_not_trusted_yet_are_added_one_a_file(guest, tmp_path: Path) -> None:
    guest("users no")
    added = sorted((tmp_path / "share/ca-certificates/lab-host").iterdir())
    assert [path.read_text() for path in added] == [certificate("new"), certificate("newer")]


def test_another_bundle_later_keeps_the_certificates_of_the_first(guest, tmp_path: Path) -> None:
    guest("users no")
    (tmp_path / "etc/bundle.pem").write_text(certificate("third"))
    assert "changed: 1 certificates of the host" in guest("users no").stdout
    assert len(list((tmp_path / "share/ca-certificates/lab-host").iterdir())) == 3


def test_the_guest_s_own_name_is_in_hosts_once(guest, tmp_path: Path) -> None:
    guest("users no; users no")
    assert (tmp_path / "etc/hosts").read_text() == "127.0.0.1 localhost\n127.0.1.1 the-guest\n"


def test_a_faulty_sudo_rule_never_takes_effect(guest, tmp_path: Path) -> None:
    result = guest("export VISUDO=1; users no")
    assert result.returncode == 1 and "visudo finds a fault in /etc/sudoers.d/lab-worker" in result.stderr
    assert not (tmp_path / "etc/sudoers.d/lab-worker").exists()


def test_a_password_that_someone_set_is_locked(guest, tmp_path: Path) -> None:
    guest("users no")
    shadow = tmp_path / "etc/shadow"
    shadow.write_text(shadow.read_text().replace("worker:!", "worker:$y$hash"))
    assert guest("users no").stdout == "changed: password of worker is locked\n"
    assert "usermod --lock worker" in (tmp_path / "calls").read_text()
