"""HOST: runs the harness role's scripts with /opt, /etc and /var/log of their own, systemctl scripted."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

ROLE = Path(__file__).parents[3] / "roles/harness/files"
SYSTEMCTL = """#!/bin/sh
case "$*" in *is-active*) [ -e "$LAB/active" ]; exit ;; *" start "* | start*) touch "$LAB/active" ;; esac
echo "$*" >>"$LAB/systemctl.log"
"""
SESSION = """
set -e
export LAB="$1" PATH="$1/bin:$PATH"
for folder in opt var/log etc; do mount --bind "$LAB/$folder" /$folder; done
cd "$LAB"
install_harness() { sh -s -- "$LAB/archive.tar.gz" /sandbox /usr/bin/python3 "$1" <"$ROLE/install.sh"; }
start_harness() { sh -s -- "$1" <"$ROLE/start.sh"; }
"""


def make_archive(path: Path, content: str, name: str = "harness/__main__.py") -> None:
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content.encode()))


@pytest.fixture
def guest(tmp_path: Path):
    """Returns run(shell): a shell that thinks it is root in a guest, with the archive at hand."""
    for folder in ("bin", "opt", "var/log", "etc/systemd/system"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("passwd", "group", "nsswitch.conf", "ld.so.cache"):
        (tmp_path / "etc" / name).write_bytes(Path("/etc", name).read_bytes())
    (tmp_path / "bin/systemctl").write_text(SYSTEMCTL)
    (tmp_path / "bin/systemctl").chmod(0o755)
    make_archive(tmp_path / "archive.tar.gz", "print('one')\n")

    def run(shell: str) -> subprocess.CompletedProcess:
        script = f'ROLE="{ROLE}"\n{SESSION}\n{shell}'
        command = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh", str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, timeout=30)

    probe = run("true")
    if probe.returncode:
        pytest.skip(f"no mount namespace can be had here: {probe.stderr.strip()}")
    return run


def test_it_unpacks_once_and_a_second_time_changes_nothing(guest, tmp_path: Path) -> None:
    first, second = guest("install_harness no"), guest("install_harness no")
    assert (first.returncode, first.stdout.count("changed: ")) == (0, 4), first.stderr
    assert (second.returncode, second.stdout) == (0, "")
    assert (tmp_path / "opt/lab-harness/harness/__main__.py").read_text() == "print('one')\n"
    assert (tmp_path / "etc/lab-harness").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "var/log/lab-harness.log").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in (tmp_path / "opt").iterdir()) == ["lab-harness"]


def test_another_archive_replaces_the_whole_tree(guest, tmp_path: Path) -> None:
    guest("install_harness no; touch /opt/lab-harness/harness/stale.py")
    make_archive(tmp_path / "archive.tar.gz", "print('two')\n")
    result = guest("install_harness no")
    assert result.stdout == "changed: the program in /opt/lab-harness\n"
    assert [path.name for path in (tmp_path / "opt/lab-harness/harness").iterdir()] == ["__main__.py"]


def test_a_running_session_keeps_its_code(guest, tmp_path: Path) -> None:
    guest("install_harness no; start_harness no")
    make_archive(tmp_path / "archive.tar.gz", "print('two')\n")
    result = guest("install_harness no")
    assert result.returncode == 1 and "`lab finish` ends it" in result.stderr
    assert (tmp_path / "opt/lab-harness/harness/__main__.py").read_text() == "print('one')\n"


def test_a_wrong_archive_leaves_the_old_tree(guest, tmp_path: Path) -> None:
    guest("install_harness no")
    make_archive(tmp_path / "archive.tar.gz", "x", name="elsewhere.py")
    result = guest("install_harness no")
    assert result.returncode == 1 and "there is no harness/__main__.py" in result.stderr
    assert (tmp_path / "opt/lab-harness/harness/__main__.py").exists()


def test_predicting_changes_nothing(guest, tmp_path: Path) -> None:
    result = guest("install_harness yes; start_harness yes")
    assert result.returncode == 0 and result.stdout.count("changed: ") == 5
    assert list((tmp_path / "opt").iterdir()) == list((tmp_path / "var/log").iterdir()) == []
    assert not (tmp_path / "systemctl.log").exists()


def test_the_session_is_started_once(guest, tmp_path: Path) -> None:
    result = guest("install_harness no >/dev/null; start_harness no; start_harness no")
    assert result.stdout == "changed: lab-harness.service is started\n"
    assert (tmp_path / "systemctl.log").read_text().count("start lab-harness.service") == 1


def test_the_unit_is_what_the_interfaces_say(guest, tmp_path: Path) -> None:
    guest("install_harness no")
    unit = (tmp_path / "etc/systemd/system/lab-harness.service").read_text().splitlines()
    assert "ExecStart=/usr/bin/python3 -m harness /etc/lab-harness/run.json" in unit
    assert {"Delegate=yes", "Slice=lab.slice", "Restart=no", "KillMode=mixed", "OOMPolicy=continue"} <= set(
        unit
    )
    assert not [line for line in unit if line.startswith("User=")]
