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


def changes_of(lab, copy, before):
    return fingerprint.changes(before, fingerprint.parts(lab))


def test_nothing_changed_is_no_change(lab, copy):
    assert changes_of(lab, copy, fingerprint.parts(lab)) == []


def test_a_changed_value_is_named_with_both_values_and_wants_a_new_guest(make_lab):
    before = fingerprint.parts(make_lab())
    (change,) = fingerprint.changes(before, fingerprint.parts(make_lab(guest={"lab_memory_mb": 2048})))
    assert change.said == "lab_memory_mb: 6144 is now 2048" and not change.converges


def test_a_changed_list_is_named_by_what_came_and_went(make_lab, lab):
    packages = [*(name for name in lab.guest["lab_image_packages"] if name != "attr"), "nano"]
    (change,) = fingerprint.changes(
        fingerprint.parts(lab), fingerprint.parts(make_lab(guest={"lab_image_packages": packages}))
    )
    assert change.said == "lab_image_packages: without attr; with nano"


@pytest.mark.parametrize(
    ("file", "converges"),
    [
        ("roles/no_delete/templates/wrapper.sh.j2", True),
        ("roles/users/files/a-new-file", True),
        ("playbooks/safeguards.yml", True),
        ("roles/volumes/tasks/main.yml", False),
        ("roles/domain/templates/domain.xml.j2", False),
        ("roles/image/files/bootstrap-debian", False),
        ("playbooks/up.yml", False),
    ],
)
def test_a_changed_file_is_named_and_only_safeguards_can_be_applied_again(lab, copy, file, converges):
    before = fingerprint.parts(lab)
    append(copy / file)
    (change,) = changes_of(lab, copy, before)
    assert change.name == file and change.converges is converges


def test_a_file_that_is_gone_wants_a_new_guest_since_what_it_did_would_stay(lab, copy):
    before = fingerprint.parts(lab)
    (copy / "roles/no_delete/templates/wrapper.sh.j2").unlink()
    (change,) = changes_of(lab, copy, before)
    assert "(gone)" in change.said and not change.converges


def test_a_bundle_of_certificates_can_be_added_but_not_taken_away_without_a_new_guest(make_lab):
    without, bundle = (
        fingerprint.parts(make_lab(guest={"lab_host_ca_bundle": path})) for path in ("", "/etc/ssl/ca.pem")
    )
    assert [change.converges for change in fingerprint.changes(without, bundle)] == [True]
    assert [change.converges for change in fingerprint.changes(bundle, without)] == [False]


def test_the_parts_and_the_hash_are_over_the_same_files(lab, copy):
    before, parts = fingerprint.of(lab), fingerprint.parts(lab)
    for name in parts["files"]:
        append(copy / name)
        assert fingerprint.of(lab) != before, name
        before = fingerprint.of(lab)
