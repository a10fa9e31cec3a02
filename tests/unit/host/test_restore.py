"""TESTS: `lab restore`: what a backup generation holds comes back byte for byte, to a new place."""

from __future__ import annotations

import io
import shutil
import subprocess

import guest_disks
import pytest
import synthetic_run
from typer.testing import CliRunner

from labkit import cli, dead_disks, restore
from labkit.dead_disks import BACKUPS
from labkit.errors import USAGE, LabError

ODD = bytes(range(256)) * 40 + b"\x00end"


class LocalShell:
    """Runs here what a guest would be asked over SSH."""

    def run(self, command, seconds=60):
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=30)
        return done.returncode, done.stdout + done.stderr

    def stream(self, command, seconds=60):
        return io.BytesIO(subprocess.run(["sh", "-c", command], capture_output=True, timeout=30).stdout)


def write_generations(backups):
    for number, content in ((9, b"older"), (10, ODD)):
        notes = backups / f"gen-{number:05d}/notes"
        notes.mkdir(parents=True)
        (notes / "it's one.md").write_bytes(content)
        (notes / "-odd\nname").write_bytes(content)
    (backups / "gen-00011.partial").mkdir()
    (backups / "gen-00010/link").symlink_to("/etc/passwd")


@pytest.fixture
def live(tmp_path):
    backups = tmp_path / "back ups"
    backups.mkdir()
    write_generations(backups)
    return restore.Guest(LocalShell(), str(backups))


@pytest.fixture
def off(tmp_path):
    """The same generations on the disks of a guest that is off."""
    if missing := guest_disks.missing():
        pytest.skip(f"not installed: {missing}")
    made = {label: tmp_path / "trees" / label for label in guest_disks.SIZES}
    for path in made.values():
        path.mkdir(parents=True)
    write_generations(made[BACKUPS])
    guest_disks.build(tmp_path / "lab/disks", made)
    with dead_disks.opened(tmp_path / "lab", (BACKUPS,)) as volumes:
        yield restore.Disks(volumes)


@pytest.fixture(params=["live", "off"])
def guest(request):
    return request.getfixturevalue(request.param)


def test_the_generations_are_those_that_are_whole_oldest_first(guest):
    known = guest.generations()
    assert [(one.number, one.name) for one in known] == [(9, "gen-00009"), (10, "gen-00010")]
    assert all(one.made.startswith("20") for one in known)


@pytest.mark.parametrize("name", ["it's one.md", "-odd\nname"])
def test_a_file_comes_back_byte_for_byte_from_the_generation_that_was_named(guest, tmp_path, name):
    newest, older = tmp_path / "newest", tmp_path / "older"
    assert restore.from_guest(guest, None, f"notes/{name}", newest).number == 10
    assert restore.from_guest(guest, 9, f"notes/{name}", older).number == 9
    assert newest.read_bytes() == ODD and older.read_bytes() == b"older"


def test_a_folder_comes_back_with_what_is_in_it_and_nothing_else_is_left(guest, tmp_path):
    target = tmp_path / "here" / "notes"
    target.parent.mkdir()
    restore.from_guest(guest, 10, "notes", target)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == {
        "it's one.md": ODD,
        "-odd\nname": ODD,
    }
    assert [path.name for path in target.parent.iterdir()] == ["notes"]


def test_an_unknown_generation_is_named_with_those_there_are(guest, tmp_path):
    with pytest.raises(LabError, match="no generation 3; there are 2, from 9 to 10") as caught:
        restore.from_guest(guest, 3, "notes", tmp_path / "x")
    assert caught.value.code == USAGE and "--list" in caught.value.hint


@pytest.mark.parametrize("path", ["notes/missing.md", "link"])
def test_what_is_not_in_it_or_is_a_link_is_said_and_nothing_is_made(guest, tmp_path, path):
    target = tmp_path / "here" / "x"
    target.parent.mkdir()
    with pytest.raises(LabError, match=r"is not in generation 10|symbolic link"):
        restore.from_guest(guest, 10, path, target)
    assert list(target.parent.iterdir()) == []


def test_nothing_that_exists_is_overwritten(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert restore.destination("notes/a.md", None) == tmp_path / "restored-a.md"
    (tmp_path / "restored-a.md").symlink_to("nowhere")
    with pytest.raises(LabError, match="is never overwritten") as caught:
        restore.destination("notes/a.md", None)
    assert "--to" in caught.value.hint


def test_a_place_in_a_folder_that_is_missing_is_named(tmp_path):
    with pytest.raises(LabError, match="there is no folder"):
        restore.destination("notes/a.md", tmp_path / "no" / "where")


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "notes/../../x", ".", "a\0b"])
def test_a_path_that_leaves_the_workspace_is_refused(path):
    with pytest.raises(LabError, match="no path below the workspace"):
        restore.wanted_path(path)


def test_the_name_of_the_workspace_may_stand_before_the_path():
    assert restore.wanted_path("workspace/notes/a.md") == restore.wanted_path("notes//a.md") == "notes/a.md"


def test_a_collected_run_gives_from_the_generation_it_brought(tmp_path):
    folder, _ = synthetic_run.build(tmp_path / "runs", steps=2)
    restore.from_run(folder, "notes/hash_speed.md", tmp_path / "back.md")
    assert (tmp_path / "back.md").read_text() == "sha256 is fastest here\n"
    restore.from_run(folder, "notes", tmp_path / "notes")
    assert (tmp_path / "notes/hash_speed.md").is_file()
    with pytest.raises(LabError, match=f"is not in the backup of run {folder.name}"):
        restore.from_run(folder, "notes/none.md", tmp_path / "none.md")


@pytest.mark.parametrize("typed", ["hash_speed.md", "notes/hash_sped.md"])
def test_a_path_that_a_collected_run_lacks_gets_the_nearest_one(tmp_path, typed):
    folder, _ = synthetic_run.build(tmp_path / "runs", steps=2)
    with pytest.raises(LabError) as caught:
        restore.from_run(folder, typed, tmp_path / "x")
    assert "did you mean notes/hash_speed.md?" in caught.value.hint and caught.value.code == USAGE
    assert f"ls -R {folder / 'backup'}" in caught.value.hint and not (tmp_path / "x").exists()


def test_a_collected_run_without_a_backup_says_so(tmp_path):
    folder, _ = synthetic_run.build(tmp_path / "runs", steps=2)
    shutil.rmtree(folder / "backup")
    with pytest.raises(LabError, match="brought no backup along"):
        restore.from_run(folder, "notes/hash_speed.md", tmp_path / "x")


def test_a_collected_run_in_which_somebody_put_a_link_is_refused(tmp_path):
    folder, _ = synthetic_run.build(tmp_path / "runs", steps=2)
    shutil.rmtree(folder / "backup/notes")
    (folder / "backup/notes").symlink_to("/etc")
    with pytest.raises(LabError, match="leads through a link"):
        restore.from_run(folder, "notes/passwd", tmp_path / "x")


def test_the_verb_restores_from_a_collected_run_without_root_or_guest(tmp_path, monkeypatch):
    synthetic_run.build(tmp_path / "runs", steps=2)
    monkeypatch.setenv("LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("labkit.verbs.record.open_lab", None)  # whoever asks for the guest fails
    done = CliRunner().invoke(cli.app, ["restore", "notes/hash_speed.md", "--run", "last"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "restored-hash_speed.md").read_text() == "sha256 is fastest here\n"
    again = CliRunner().invoke(cli.app, ["restore", "notes/hash_speed.md", "--run", "last"])
    assert isinstance(again.exception, LabError) and "never overwritten" in str(again.exception)
