"""UNIT: tools, sweep and inventory among 100,000 files, odd names and contents that are no text."""

import os
import time

import pytest
from test_tools import make_desk

from harness import inventory, tools
from harness.inventory import Inventory
from harness.sweep import Sweep

ODD = [
    b"new\nline.md",
    b"\xff\xfe.md",
    "größe \U0001f600.md".encode(),
    b"-rf",
    b"$(touch y)",
    b"a\x1b[31mred.md",
    b"x" * 255,
]


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    """90,000 files in 300 folders below tools/, 10,000 in scripts/."""
    desk = make_desk(tmp_path_factory.mktemp("crowd"))
    for number in range(300):
        _fill(desk.settings.paths.workspace / "tools" / f"d{number}", 300)
    _fill(desk.settings.paths.scripts, 10_000)
    return desk


def _fill(folder, count):
    """Hard links are quicker to make than files, and as many to look at."""
    folder.mkdir(exist_ok=True)
    (folder / "f0").write_text("x")
    for number in range(1, count):
        os.link(folder / "f0", folder / f"f{number}")


def test_a_listing_of_a_hundred_thousand_files_is_short_and_says_that_there_is_more(crowded):
    told = tools.use("list_workspace", {}, crowded).text
    assert len(told.split("\n")) < 450
    assert "there is more" in told
    assert "9850 more entries here" in tools.use("list_workspace", {"path": "scripts"}, crowded).text


def test_a_sweep_stops_when_its_time_is_over_and_later_ones_find_the_rest(crowded):
    sweep = Sweep(crowded.settings.paths.workspace, protects=False)
    first = sweep.run(0.002)
    assert not first.complete
    found, rounds = len(first.closed), 0
    while found < 10_000 and rounds < 1000:
        found, rounds = found + len(sweep.run(0.2).closed), rounds + 1
    assert found == 10_000
    assert sweep.run(60).complete


def test_a_sweep_finds_what_came_into_a_folder_that_was_given_back_its_old_time(tmp_path):
    for top in ("notes", "scripts"):
        (tmp_path / top).mkdir()
    os.utime(tmp_path / "notes", (1e9, 1e9))
    time.sleep(0.2)  # longer than a time of change is in doubt
    sweep = Sweep(tmp_path, protects=False)
    assert sweep.run(60).closed == []
    (tmp_path / "notes/late.md").write_text("x")
    os.utime(tmp_path / "notes", (1e9, 1e9))
    assert [file.path for file in sweep.run(60).closed] == ["notes/late.md"]


def test_a_sweep_of_many_folders_stops_in_time_too(crowded, tmp_path):
    for number in range(2000):
        (tmp_path / "notes" / f"d{number}").mkdir(parents=True)
    (tmp_path / "scripts").mkdir()
    began = time.monotonic()
    assert not Sweep(tmp_path, protects=False).run(0.0).complete
    assert time.monotonic() - began < 20


def test_the_inventory_holds_its_most_and_the_run_goes_on(crowded, monkeypatch):
    monkeypatch.setattr(inventory, "MOST_ROWS", 500)
    kept = Inventory(crowded.settings, crowded.recorder)
    kept.begin()
    assert len(kept.rows) == 500
    assert kept.at_the_end(hasty=True) == 0
    said = crowded.recorder.query("SELECT guard_reason FROM execution_logs WHERE event_type = 'GUARD'")
    assert any("holds the first 500 files" in reason for (reason,) in said)


@pytest.fixture
def desk(tmp_path):
    desk = make_desk(tmp_path)
    yield desk
    desk.jobs.stop()


@pytest.mark.parametrize("name", ODD)
def test_a_file_with_an_odd_name_is_listed_swept_and_read(desk, name):
    notes = os.fsencode(desk.settings.paths.notes)
    with open(os.path.join(notes, name), "wb") as file:
        file.write(b"inside\n")
    listed = tools.use("list_workspace", {}, desk).text
    assert "7 bytes" in listed
    assert "\x1b" not in listed
    Inventory(desk.settings, desk.recorder).begin()
    told = tools.use("read_file", {"path": "notes/" + os.fsdecode(name)}, desk).text
    assert told == "inside\n"


@pytest.mark.parametrize(
    "content", [b"\0" * 5000, bytes(range(256)) * 40, b"\xff" * 5000, b"\xe2\x82" * 3000]
)
def test_a_binary_file_is_read_in_parts_as_text_without_controls(desk, content):
    (desk.settings.paths.workspace / "bin").write_bytes(content)
    offset, parts = 0, 0
    while parts < 20:
        told = tools.use("read_file", {"path": "bin", "offset": offset}, desk).text
        assert not {"\0", "\x1b", "\x07"} & set(told)
        parts += 1
        if "go on with offset" not in told:
            break
        offset = int(told.rsplit(" ", 1)[1].rstrip("]"))
    assert offset + 2003 >= len(content)
