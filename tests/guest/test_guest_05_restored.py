"""HOST: `lab restore` from the running guest: a generation comes back byte for byte, an older one too."""

from pathlib import Path

import pytest


def content(folder: Path) -> dict[str, bytes]:
    """Path below `folder` to what is in the file."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def generations(lab, collected) -> list[dict]:
    return lab.lab("restore", "--list", "--json").json


def test_the_guest_lists_its_generations_oldest_first(generations):
    numbers = [one["number"] for one in generations]
    assert len(numbers) > 1 and numbers == sorted(numbers)


def test_the_newest_generation_is_the_one_that_was_collected(lab, collected, generations, tmp_path):
    done = lab.lab("restore", "notes", "--to", str(tmp_path / "notes"), "--json").json
    assert done["number"] == generations[-1]["number"]
    restored = content(tmp_path / "notes")
    assert restored and restored == content(collected / "backup" / "notes")


def test_an_older_generation_holds_fewer_notes_and_the_same_bytes(lab, collected, generations, tmp_path):
    words = ("restore", "notes", "--generation", str(generations[0]["number"]), "--to", str(tmp_path / "old"))
    lab.lab(*words)
    old, new = content(tmp_path / "old"), content(collected / "backup" / "notes")
    assert len(old) < len(new)
    assert all(new[name].startswith(data) for name, data in old.items())  # notes are append-only
    assert "exists and is never overwritten" in lab.lab(*words, code=2).err
