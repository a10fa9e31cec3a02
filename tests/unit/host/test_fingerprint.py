"""TESTS: what makes `lab up` build the guest anew, and what does not."""

from __future__ import annotations

import shutil

import pytest

from labkit import config, fingerprint
from labkit.config import REPO


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A copy of roles and playbooks that a test may change."""
    for folder in ("roles", "playbooks"):
        shutil.copytree(REPO / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(fingerprint, "REPO", tmp_path)
    return tmp_path


def append(path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write("# changed\n")


@pytest.mark.parametrize(
    "file",
    [
        "roles/no_delete/tasks/main.yml",
        "roles/domain/templates/domain.xml.j2",
        "roles/image/files/bootstrap-debian",
        "roles/snapshot/files/lab-resume",
        "roles/users/defaults/main.yml",
        "roles/users/files/a-new-file",
        "playbooks/up.yml",
    ],
)
def test_a_changed_role_or_playbook_of_up_is_noticed(lab, copy, file):
    before = fingerprint.of(lab)
    append(copy / file)
    assert fingerprint.of(lab) != before


@pytest.mark.parametrize(
    "file",
    [
        "roles/harness/tasks/main.yml",
        "roles/collect/files/lab-collect",
        "roles/users/README.md",
        "roles/domain/library/__pycache__/lab_guest.pyc",
        "playbooks/run.yml",
        "playbooks/collect.yml",
    ],
)
def test_what_acts_only_in_a_run_or_is_prose_is_not(lab, copy, file):
    before = fingerprint.of(lab)
    append(copy / file)
    assert fingerprint.of(lab) == before


def test_a_changed_value_of_guest_yml_is_noticed_and_one_of_run_yml_is_not(make_lab):
    before = fingerprint.of(make_lab())
    assert fingerprint.of(make_lab(run={"run_minutes": 5})) == before
    assert fingerprint.of(make_lab(guest={"lab_memory_mb": 2048})) != before


def test_the_order_of_variables_and_comments_do_not_count(inventory):
    folder = inventory(guest={"lab_vcpus": 4, "lab_memory_mb": 2048})
    before = fingerprint.of(config.load(folder))
    path = folder / config.GUEST_FILE
    path.write_text("# a comment\n" + "\n".join(reversed(path.read_text().splitlines())) + "\n")
    assert fingerprint.of(config.load(folder)) == before
