"""TESTS: `lab gc`: what can go is named and freed; what a lab or a person still needs is never among it."""

from __future__ import annotations

import json
import os
import shutil

import pytest
import synthetic_run
from typer.testing import CliRunner

from labkit import cli, disks, gc, harness_archive, lock, state
from labkit.errors import LabError

pytestmark = pytest.mark.skipif(not shutil.which("qemu-img"), reason="qemu-img is not installed")
RUN_ID = synthetic_run.RUN_ID


@pytest.fixture
def place(tmp_path):
    """(state folder, runs folder) with one lab in it."""
    (tmp_path / "state/lab/disks").mkdir(parents=True)
    (tmp_path / "state/.lab.lock").touch()
    (tmp_path / "runs").mkdir()
    return tmp_path / "state", tmp_path / "runs"


def image(state_dir, name, age):
    folder = state_dir / "images" / name
    folder.mkdir(parents=True)
    disks.qemu_img("create", "-q", "-f", "qcow2", folder / "disk.qcow2", "1M")
    (folder / "SHA256SUMS").write_text("")
    os.utime(folder, (1_800_000_000 - age,) * 2)
    return folder


def found(place):
    return {garbage.path.relative_to(place[0]).as_posix(): garbage for garbage in gc.find(*place)}


def test_an_image_goes_only_when_no_lab_stands_on_it_or_was_built_from_it(place):
    state_dir = place[0]
    image(state_dir, "debian-12-newest", age=0)
    stood_on, built_from = image(state_dir, "debian-12-b", age=10), image(state_dir, "debian-12-c", age=20)
    image(state_dir, "debian-12-d", age=30)
    disks.make_overlay(state_dir / "lab/disks/system.qcow2", stood_on / "disk.qcow2")
    state.update(state_dir / "lab", image=str(built_from))
    assert list(found(place)) == ["images/debian-12-d"]


def test_while_it_cannot_be_told_what_a_guest_stands_on_no_image_goes(place):
    image(place[0], "debian-12-newest", age=0)
    image(place[0], "debian-12-old", age=10)
    (place[0] / "lab/disks/system.qcow2").write_text("no disk")
    assert found(place) == {}


def test_archives_of_an_older_harness_go_and_todays_stays(place):
    folder = place[0] / "harness"
    folder.mkdir()
    (current,) = harness_archive.current_names()
    for name in (current, "0123456789abcdef.tar.gz"):
        (folder / name).write_bytes(b"x" * 5000)
    garbage = found(place)
    assert list(garbage) == ["harness/0123456789abcdef.tar.gz"]
    assert garbage["harness/0123456789abcdef.tar.gz"].bytes >= 5000


def test_a_spare_set_goes_only_beside_a_whole_one(place):
    lab = place[0] / "lab"
    (lab / "set.old").mkdir()
    assert found(place) == {}
    (lab / "set").mkdir()
    (lab / "set/manifest.json").write_text("{}")
    (lab / "offline").mkdir()
    (lab / "disks/seed.iso.new").write_text("")
    assert set(found(place)) == {"lab/set.old", "lab/offline", "lab/disks/seed.iso.new"}


def gateway(place, run_id, **files):
    folder = place[0] / "lab/gateway" / run_id
    folder.mkdir(parents=True)
    for name, content in {"events.jsonl": '{"id": 1}\n', **files}.items():
        (folder / name).write_text(content)
    return folder


def test_a_gateway_folder_goes_when_its_run_was_collected_whole_or_never_began(place):
    synthetic_run.build(place[1], steps=2)
    gateway(place, RUN_ID)
    gateway(place, "20261128-000000-aaaaaa")  # discarded: nothing else is left of it
    gateway(place, "20261127-000000-bbbbbb", **{"not-started.json": "{}", "events.jsonl": ""})
    assert set(found(place)) == {f"lab/gateway/{RUN_ID}", "lab/gateway/20261127-000000-bbbbbb"}


def test_a_gateway_folder_stays_while_its_run_is_in_the_guest_or_came_incomplete(place):
    folder, _ = synthetic_run.build(place[1], steps=2)
    gateway(place, RUN_ID)
    state.update(place[0] / "lab", run=RUN_ID, collected=True)
    assert found(place) == {}
    state.update(place[0] / "lab", run=None)
    (folder / "manifest.json").write_text(json.dumps({"extraction": {"complete": False}}))
    assert found(place) == {}


def test_what_is_freed_is_gone_and_nothing_else(place):
    image(place[0], "debian-12-newest", age=0)
    image(place[0], "debian-12-old", age=10)
    synthetic_run.build(place[1], steps=2)
    gateway(place, RUN_ID)
    freed = {garbage.path.name for garbage in gc.free(*place)}
    assert freed == {"debian-12-old", RUN_ID}
    assert [path.name for path in (place[0] / "images").iterdir()] == ["debian-12-newest"]
    assert (place[1] / RUN_ID / "run.db").is_file() and found(place) == {}


def test_nothing_is_freed_while_any_lab_of_this_host_is_at_work(place):
    image(place[0], "debian-12-newest", age=0)
    old = image(place[0], "debian-12-old", age=10)
    with lock.hold(place[0], "lab", "up"), pytest.raises(LabError, match="`lab up` .* is at work"):
        gc.free(*place)
    assert old.is_dir()


def test_links_are_neither_followed_nor_removed(place, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (place[0] / "images").mkdir()
    (place[0] / "images/link.partial").symlink_to(tmp_path / "elsewhere")
    (place[0] / "lab/offline").symlink_to(tmp_path / "elsewhere")
    assert found(place) == {}


def test_images_shared_with_labs_elsewhere_are_left_alone(place, tmp_path):
    shared = tmp_path / "shared"
    image(shared, "debian-12-newest", age=0)
    image(shared, "debian-12-old", age=10)
    (place[0] / "images").symlink_to(shared / "images")
    assert found(place) == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="the verb becomes root first")
def test_the_verb_shows_first_and_removes_when_told(place, inventory, monkeypatch):
    old = place[0] / "unit/offline"
    old.mkdir(parents=True)
    monkeypatch.setenv("LAB_RUNS", str(place[1]))
    arguments = ["gc", "--inventory", str(inventory())]
    shown = CliRunner().invoke(cli.app, arguments)
    assert shown.exit_code == 0 and f"leftover: {old}" in shown.output and "lab gc --yes" in shown.output
    assert old.is_dir()
    freed = json.loads(CliRunner().invoke(cli.app, [*arguments, "--yes", "--json"]).output)
    assert [thing["path"] for thing in freed["things"]] == [str(old)] and not old.exists()
    assert "nothing that could go" in CliRunner().invoke(cli.app, arguments).output


@pytest.mark.parametrize(("size", "words"), [(0, "0 bytes"), (2048, "2 KiB"), (3 << 30, "3.0 GiB")])
def test_sizes_are_said_in_words(size, words):
    assert gc.spoken(size) == words


def test_the_folder_of_a_simulation_goes_once_its_process_is_gone(place, tmp_path):
    memory, nobody = tmp_path / "memory", 999_999_999  # above the highest number that Linux gives a process
    names = (
        f"lab-simulate-{nobody}-ab_1",
        f"lab-simulate-{os.getpid()}-cd",
        "lab-simulate-tests-ef",
        "other",
    )
    for name in names:
        (memory / name / "sandbox").mkdir(parents=True)
    (memory / f"lab-simulate-{nobody}-link").symlink_to(tmp_path)
    assert [garbage.path.name for garbage in gc.find(*place, [memory])] == [names[0]]
    gc.free(*place, [memory])
    assert not (memory / names[0]).exists() and all((memory / name).exists() for name in names[1:])
