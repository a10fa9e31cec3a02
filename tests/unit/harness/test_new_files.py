"""UNIT: notes and scripts can only be new."""

import os
import re
import stat

import pytest

from harness.telemetry.recorder import Recorder
from harness.tools.new_files import NotWritten, notes_folder, scripts_folder, write_new


@pytest.fixture
def recorder(tmp_path):
    return Recorder(tmp_path / "run.db", tmp_path / "mirror.db", "secret", lambda: 1.0)


@pytest.fixture
def notes(tmp_path):
    (tmp_path / "notes").mkdir()
    return notes_folder(tmp_path / "notes")


def test_a_second_write_is_refused_and_names_the_next_free_version(notes, recorder):
    write_new(notes, "x.md", "one", recorder, None)
    write_new(notes, "x_v2.md", "two", recorder, None)
    with pytest.raises(NotWritten, match=r"nothing is ever overwritten.*x_v3\.md"):
        write_new(notes, "x.md", "three", recorder, None)
    assert (notes.path / "x.md").read_text() == "one"


@pytest.mark.parametrize(
    ("name", "following"),
    [
        ("a.tar.gz", "a_v2.tar.gz"),
        ("a_v2.tar.gz", "a_v3.tar.gz"),
        ("a.test.js", "a.test_v2.js"),
        ("notes.2026.md", "notes.2026_v2.md"),
        ("plain", "plain_v2"),
        ("tar.gz", "tar_v2.gz"),
    ],
)
def test_a_version_stands_before_an_ending_of_two_parts(name, following, notes, recorder):
    write_new(notes, name, "one", recorder, None)
    with pytest.raises(NotWritten, match=f"next free version is {re.escape(following)}$"):
        write_new(notes, name, "two", recorder, None)


def test_the_registry_knows_the_version_of_an_archive(notes, recorder):
    write_new(notes, "a_v3.tar.xz", "", recorder, None)
    assert recorder.query("SELECT version FROM file_registry") == [(3,)]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x.md", "a/b.md", "/etc/x", "a\0b", ".hidden", "a\nb", "x" * 200]
)
def test_only_plain_names_are_written(name, notes, recorder):
    with pytest.raises(NotWritten):
        write_new(notes, name, "", recorder, None)
    assert os.listdir(notes.path) == []


@pytest.mark.parametrize("name", ["\u202egnp.md", "a\ud800.md", "a\udc80.md", "x\u200b.md", "\U000e0041.md"])
def test_a_name_that_the_worker_could_not_read_back_is_refused_before_anything_is_made(name, notes, recorder):
    with pytest.raises(NotWritten, match="invisible"):
        write_new(notes, name, "", recorder, None)
    assert os.listdir(notes.path) == []


def test_a_link_in_the_way_is_not_followed(notes, recorder, tmp_path):
    (notes.path / "x.md").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotWritten):
        write_new(notes, "x.md", "text", recorder, None)
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_became_a_link_is_not_followed(recorder, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "other")
    with pytest.raises(NotWritten):
        write_new(notes_folder(tmp_path / "linked"), "x.md", "text", recorder, None)
    assert os.listdir(tmp_path / "other") == []


def test_the_registry_tells_notes_scripts_and_masters_with_their_versions(notes, recorder, tmp_path):
    (tmp_path / "scripts").mkdir()
    write_new(notes, "finding.md", "", recorder, None)
    write_new(notes, "notes/master_v3.md", "", recorder, None)
    write_new(scripts_folder(tmp_path / "scripts"), "probe_v2.py", "#!", recorder, None)
    assert recorder.query("SELECT file_path, file_type, version FROM file_registry") == [
        ("notes/finding.md", "SCRATCHPAD", 1),
        ("notes/master_v3.md", "MASTER_SUMMARY", 3),
        ("scripts/probe_v2.py", "SCRIPT", 2),
    ]
    assert stat.S_IMODE((tmp_path / "scripts" / "probe_v2.py").stat().st_mode) == 0o755


def test_odd_names_and_odd_text_are_kept(notes, recorder):
    write_new(notes, "größe & 'quotes' \U0001f600.md", "lone \ud800 surrogate", recorder, None)
    assert os.listdir(notes.path) == ["größe & 'quotes' \U0001f600.md"]
