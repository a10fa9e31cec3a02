"""TESTS: the one archive that goes into the guest: whole or not there, and built again only with a reason."""

from __future__ import annotations

import shutil
import tarfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from labkit import harness_archive
from labkit.errors import NOT_READY, LabError


@pytest.fixture
def harness(tmp_path, monkeypatch):
    """A copy of harness/ that a test may change."""
    copy = tmp_path / "harness"
    shutil.copytree(harness_archive.HARNESS, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(harness_archive, "HARNESS", copy)
    return copy


@pytest.fixture
def no_index(tmp_path, monkeypatch):
    """uv with an empty cache and an index that refuses."""
    for name, value in {
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple",
        "UV_INDEX_URL": "http://127.0.0.1:9/simple",
        "UV_HTTP_RETRIES": "0",
        "UV_NO_CONFIG": "1",
    }.items():
        monkeypatch.setenv(name, value)


def test_a_host_that_does_not_reach_its_index_is_told_so_and_no_archive_is_left(lab, no_index):
    with pytest.raises(LabError, match="can't fetch the harness's packages: .") as caught:
        harness_archive.build(lab)
    assert caught.value.code == NOT_READY and "package index" in caught.value.hint
    assert list((lab.state_dir / "harness").iterdir()) == []


def test_an_archive_that_is_there_is_taken_without_asking_anyone(lab, no_index, harness):
    target = lab.state_dir / "harness" / f"{harness_archive._content_address('3.11')}.tar.gz"
    target.parent.mkdir(parents=True)
    target.write_bytes(b"built before")
    assert harness_archive.build(lab) == target


@pytest.mark.parametrize("file", ["prompts/worker.md", "requirements.lock", "tools/a_new_one.py"])
def test_a_change_of_the_harness_or_its_lock_needs_a_new_archive(harness, file):
    before = harness_archive._content_address("3.11")
    with (harness / file).open("a") as text:
        text.write("\n# changed\n")
    assert harness_archive._content_address("3.11") != before
    assert harness_archive._content_address("3.13") != harness_archive._content_address("3.11")


def parts(folder):
    for name in ("harness", "site-packages"):
        (folder / name).mkdir(parents=True)
        (folder / name / "module.py").write_text("x = 1\n" * 5000)
    return folder


def test_two_labs_that_build_the_same_archive_at_once_both_get_it_whole(tmp_path):
    folder, target = parts(tmp_path / "parts"), tmp_path / "out" / "one.tar.gz"
    target.parent.mkdir()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: harness_archive._pack(folder, target), range(8)))
    assert [path.name for path in target.parent.iterdir()] == ["one.tar.gz"]
    with tarfile.open(target) as archive:
        names = {entry.name: (entry.uid, entry.uname) for entry in archive}
    assert names["harness/module.py"] == names["site-packages/module.py"] == (0, "root")


def test_an_archive_that_could_not_be_finished_leaves_nothing(tmp_path):
    target = tmp_path / "out" / "one.tar.gz"
    target.parent.mkdir()
    with pytest.raises(FileNotFoundError):
        harness_archive._pack(tmp_path / "missing", target)
    assert list(target.parent.iterdir()) == []
