"""TESTS: the image role's cache, with a bootstrap that takes a second in the place of the real one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.config import REPO

PLAY = """
- hosts: localhost
  connection: local
  gather_facts: false
  roles:
    - {{role: image, image_dir: {images}, image_packages: [one, two], image_mirror: "http://x.invalid/debian"}}
"""
BOOTSTRAP = """#!/bin/sh
echo "$@" >> {log}
sleep 1
mkdir "$1" && touch "$1/SHA256SUMS"
"""
UTF_8 = {"LC_ALL": "C.UTF-8"}  # Ansible refuses any other encoding
pytestmark = pytest.mark.skipif(shutil.which("flock") is None, reason="no flock here")


@pytest.fixture
def start(tmp_path):
    """Starts a playbook with nothing but the image role."""
    role = tmp_path / "roles" / "image"
    shutil.copytree(REPO / "roles" / "image", role)
    script = role / "files" / "bootstrap-debian"
    script.write_text(BOOTSTRAP.format(log=tmp_path / "log"))
    script.chmod(0o755)
    (tmp_path / "play.yml").write_text(PLAY.format(images=tmp_path / "images"))
    environment = {"ANSIBLE_ROLES_PATH": str(tmp_path / "roles"), "ANSIBLE_NOCOLOR": "1"}
    environment = os.environ | environment | UTF_8
    program = [
        str(Path(sys.executable).parent / "ansible-playbook"),
        "-i",
        "localhost,",
        "-e",
        "ansible_python_interpreter={{ ansible_playbook_python }}",
        str(tmp_path / "play.yml"),
    ]
    return lambda: subprocess.Popen(
        program, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path
    )


def test_two_labs_that_want_the_same_image_at_once_make_it_once(start, tmp_path):
    both = [start(), start()]
    said = [process.communicate(timeout=100)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == 1, lines  # a second bootstrap would replace the disk the first one's guest stands on
    folder, suite, *rest = lines[0].split()
    assert suite == "bookworm" and rest[-2:] == ["one", "two"]
    assert (Path(folder) / "SHA256SUMS").exists() and Path(folder).parent == tmp_path / "images"
