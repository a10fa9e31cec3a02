"""TESTS: `./lab` itself, in a copy of the tree: what it says before there is a virtual environment."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from labkit.config import REPO

TOOLS = ("bash", "dirname", "readlink", "cat", "sha256sum", "flock", "id", "python3", "env")
# A python3 that is new enough and has no room for a virtual environment.
BROKEN_VENV = '[ "$1" = -c ] && exit 0; echo "no room left" >&2; exit 1'
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")


@pytest.fixture
def clone(tmp_path) -> Path:
    """What of a clone the launcher looks at, with nothing installed."""
    folder = tmp_path / "clone"
    (folder / "labkit").mkdir(parents=True)
    shutil.copy(REPO / "lab", folder / "lab")
    shutil.copy(REPO / "labkit" / "apt-packages.txt", folder / "labkit")
    for name in ("requirements.lock", "requirements-base.lock"):
        (folder / name).write_text(f"nothing-real==1.0 --hash=sha256:{'0' * 64}\n# {name}\n")
    return folder


@pytest.fixture
def launch(clone, tmp_path):
    """Runs the clone's launcher with a PATH of a few programs; extra scripts by name."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in TOOLS:
        if path := shutil.which(name):
            (programs / name).symlink_to(path)

    def run(*arguments: str, without: tuple[str, ...] = (), **scripts: str) -> subprocess.CompletedProcess:
        for name in without:
            (programs / name).unlink()
        for name, text in scripts.items():
            path = programs / name.replace("_", "-")
            path.unlink(missing_ok=True)
            path.write_text(f"#!{shutil.which('bash')}\n{text}\n")
            path.chmod(0o755)
        # An index that refuses at once: nothing is ever fetched here.
        environment = {
            "PATH": str(programs),
            "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
            "PIP_RETRIES": "0",
        }
        command = [str(clone / "lab"), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=90, env=environment, cwd="/"
        )

    return run


def current(clone: Path, lock: str = "requirements.lock", folder: str = "") -> None:
    """A virtual environment that is up to date, with a python that only says what it was called with."""
    python = clone / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "python $*"\n')
    python.chmod(0o755)
    stamp = hashlib.sha256(f"{(clone / lock).read_text()}{folder or clone}\n".encode()).hexdigest()
    (clone / ".venv" / ".lock").write_text(f"{stamp}  -\n")


def said(done: subprocess.CompletedProcess) -> str:
    assert done.returncode == 3, done.stderr
    assert done.stderr.splitlines()[-2].startswith("lab: ") and done.stderr.splitlines()[-1].startswith(
        "     "
    )
    return done.stderr


def test_the_launcher_is_sound_bash():
    assert subprocess.run(["bash", "-n", str(REPO / "lab")], check=False).returncode == 0
    assert os.access(REPO / "lab", os.X_OK)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="no shellcheck here")
def test_shellcheck_finds_nothing():
    done = subprocess.run(["shellcheck", str(REPO / "lab")], capture_output=True, text=True, check=False)
    assert done.stdout == ""


def test_a_host_without_apt_is_told_what_works_there(launch):
    assert "this host has no apt" in said(launch("up"))
    assert "here work: runs query verify simulate gateway, and the notebooks" in said(launch("doctor"))


@pytest.mark.parametrize("arguments", [["query", "list"], ["runs"], ["help"], [], ["up", "--help"]])
def test_what_needs_no_guest_needs_no_apt(launch, clone, arguments):
    current(clone)
    done = launch(*arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("python -P -m labkit ")


def test_help_is_not_found_in_a_command_for_the_guest(launch, clone):
    current(clone)
    assert "this host has no apt" in said(launch("ssh", "--", "ls", "--help"))


def test_nobody_without_root_and_sudo_is_left_wondering(launch):
    done = launch("up", apt_get="exit 0", dpkg_query="exit 1", id="echo 1000")
    assert "setting up needs root, and there is no sudo" in done.stderr
    assert done.returncode == 3


def test_packages_that_cannot_be_had_are_said_with_what_to_mend(launch):
    done = launch("up", apt_get="exit 100", dpkg_query="exit 1", id="echo 0")
    assert "apt-get update failed" in said(done)


def test_a_missing_lock_file_is_named(launch, clone):
    (clone / "requirements-base.lock").unlink()
    assert "requirements-base.lock is missing" in said(launch("runs"))
    (clone / "requirements.lock").unlink()
    there = {"apt_get": "exit 0", "dpkg_query": "echo installed"}
    assert "requirements.lock is missing" in said(launch("up", **there))


def test_what_touches_no_guest_is_made_without_the_hypervisors_packages_where_these_are_missing(launch):
    assert ".venv from requirements-base.lock" in launch("simulate").stderr
    assert ".venv from requirements-base.lock" in launch("simulate", dpkg_query="exit 1").stderr
    assert ".venv from requirements.lock" in launch("simulate", dpkg_query="echo installed").stderr


def test_an_environment_without_the_hypervisors_packages_serves_what_touches_no_guest_alone(launch, clone):
    current(clone, "requirements-base.lock")
    assert launch("gateway", "--help").returncode == 0
    assert launch("verify", "last").stdout == "python -P -m labkit verify last\n"
    there = {"apt_get": "exit 0", "dpkg_query": "echo installed"}
    assert ".venv from requirements.lock" in launch("status", **there).stderr


def test_a_virtual_environment_that_cannot_be_made_is_said_in_words(launch):
    done = launch("runs", python3=BROKEN_VENV)
    assert "no room left" in done.stderr
    assert "making the virtual environment" in said(done) and "then repeat" in done.stderr


# A python3 that is new enough, lies where nobody but root may look, and says so when it is taken.
ROOTS_OWN = 'case "$2" in *st_mode*) exit 1;; esac; [ "$1" = -c ] && exit 0; echo "of its own" >&2; exit 1'


@pytest.mark.skipif(not Path("/usr/bin/python3").is_file(), reason="no Python of the system's here")
def test_root_makes_the_environment_of_a_python_that_others_can_run(launch):
    assert "of its own" not in launch("runs", python3=ROOTS_OWN, id="echo 0").stderr
    assert "of its own" in launch("runs", python3=ROOTS_OWN, id="echo 1000").stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_an_environment_that_leads_below_roots_home_is_said_with_the_cure(clone):
    current(clone)
    with tempfile.TemporaryDirectory() as place:
        folder, closed = Path(place) / "kit", Path(place) / "closed"
        Path(place).chmod(0o755)
        clone.rename(folder)
        closed.mkdir(mode=0o700)
        (folder / ".venv/bin/python").rename(closed / "python")
        (folder / ".venv/bin/python").symlink_to(closed / "python")
        (folder / ".venv/pyvenv.cfg").write_text(f"home = {closed}\n")
        done = subprocess.run(
            [folder / "lab", "runs"], capture_output=True, text=True, check=False, user=65534, group=65534
        )
    assert f"you can't run {folder}/.venv/bin/python: it leads to {closed}" in said(done)
    assert f"rm -r {folder}/.venv" in done.stderr and "lab doctor" in done.stderr


def test_packages_that_do_not_match_the_lock_are_refused_and_the_next_try_starts_anew(launch, clone):
    done = launch("runs")
    assert "making the virtual environment .venv" in done.stderr
    assert "installing the Python packages failed" in said(done)
    assert not (clone / ".venv" / ".lock").exists()  # a half-made one is never taken for whole


def test_a_clone_that_was_moved_makes_its_environment_anew(launch, clone):
    current(clone, folder="/where/it/was")
    assert "making the virtual environment .venv" in launch("runs", python3=BROKEN_VENV).stderr


def test_an_environment_with_the_test_tools_besides_serves_every_verb(launch, clone):
    (clone / "requirements-test.lock").write_text("more==1.0\n")
    current(clone, "requirements-test.lock")
    assert launch("runs").returncode == 0
