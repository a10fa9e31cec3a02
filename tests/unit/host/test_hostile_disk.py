"""TESTS: a file system made to harm its reader: it ends, stays bounded, and writes nowhere else."""

from __future__ import annotations

import io
import os
import random
import struct
import time

import guest_disks
import pytest

from labkit import disk_archive, untar
from labkit.dead_disks import ROOT, Volumes
from labkit.ext4 import ROOT_INODE, Ext4, Unreadable

pytestmark = pytest.mark.skipif(
    bool(guest_disks.missing()), reason=f"not installed: {', '.join(guest_disks.missing())}"
)
BLOCK = 4096


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """The bytes of a partition with a small workspace."""
    root = tmp_path_factory.mktemp("disk")
    workspace = root / "tree/sandbox/workspace"
    (workspace / "notes").mkdir(parents=True)
    (workspace / "notes/a.md").write_text("a note\n")
    (workspace / "twin").mkdir()
    (workspace / "twin/first").symlink_to("/nowhere/evil")
    (workspace / "twin/other").write_text("written through a link?\n")
    (workspace / "data.bin").write_bytes(os.urandom(300_000))
    with (workspace / "holes").open("wb") as file:
        file.seek(1 << 20)
        file.write(b"end")
    disk = root / "disk"
    guest_disks.run("mke2fs", "-q", "-F", "-t", "ext4", "-b", BLOCK, "-d", root / "tree", disk, "8M")
    return disk.read_bytes()


def opened(content):
    return Ext4(io.BytesIO(bytes(content)))


def place_of_inode(content, number):
    """First byte of an inode: the table of the only group, 256 bytes each."""
    (table,) = struct.unpack_from("<I", content, BLOCK + 8)
    return table * BLOCK + (number - 1) * 256


def collected(content, into, **limits):
    """What the receiving end makes of it, and the problems that were noted."""
    volumes = Volumes(found={ROOT: opened(content)})
    into.mkdir()
    bounds = untar.Limits(**({"file_bytes": 4 << 20, "files": 200} | limits))
    with disk_archive.piped(
        lambda file: disk_archive.write(file, {"run.db": b"x"}, volumes, "/sandbox", bounds), volumes.problems
    ) as stream:
        return untar.extract(stream, into, bounds), volumes.problems


def renamed(content, old, new):
    """The disk with another name in a folder; both of one length."""
    assert len(old) == len(new) and content.count(old) == 1
    return content.replace(old, new)


def test_content_and_holes_are_read_byte_for_byte(pristine, tmp_path):
    result, problems = collected(pristine, tmp_path / "out")
    assert result.stopped is None and problems == []
    assert (tmp_path / "out/workspace/notes/a.md").read_text() == "a note\n"
    assert (tmp_path / "out/workspace/holes").read_bytes() == bytes(1 << 20) + b"end"


@pytest.mark.parametrize("name", [b"../..", b"/etc/", b"a\0b/c"])
def test_a_name_that_leaves_the_tree_makes_no_file(pristine, tmp_path, name):
    evil = name.ljust(5, b"x")[:5]
    result, _ = collected(renamed(pristine, b"other", evil), tmp_path / "out")
    assert result.stopped is None
    found = [
        path for path in tmp_path.rglob("*") if path.is_file() and path.read_bytes().startswith(b"written")
    ]
    assert all(path.is_relative_to(tmp_path / "out/workspace/twin") for path in found)
    assert not (tmp_path / "out/workspace/notes").is_symlink()


def test_a_file_with_the_name_of_a_link_is_not_written_through_it(pristine, tmp_path):
    evil = pristine.replace(b"/nowhere/evil", os.fsencode(f"{tmp_path}/x")[:13].ljust(13, b"/"))
    result, _ = collected(renamed(evil, b"other", b"first"), tmp_path / "out")
    twin = tmp_path / "out/workspace/twin/first"
    assert not twin.is_symlink() and twin.read_text() == "written through a link?\n"
    assert [skip["name"] for skip in result.skipped] == ["workspace/twin/first"]


def test_a_folder_that_holds_itself_comes_to_an_end(pristine, tmp_path):
    fs = opened(pristine)
    workspace, notes = fs.find("sandbox/workspace"), fs.find("sandbox/workspace/notes")
    content = bytearray(pristine)
    entry = struct.pack("<I", notes.number)
    at = content.index(b"\x05\x02notes") - 6  # inode, length of the record, length of the name, kind
    assert content[at : at + 4] == entry
    content[at : at + 4] = struct.pack("<I", workspace.number)
    result, problems = collected(content, tmp_path / "out")
    assert result.stopped is None and any("within itself" in problem for problem in problems)
    assert (tmp_path / "out/workspace/data.bin").stat().st_size == 300_000


def extents_of(content, path, node):
    """The disk with another extent tree in that file's inode."""
    content = bytearray(content)
    at = place_of_inode(content, opened(content).find(path).number) + 0x28
    content[at : at + len(node)] = node
    return content


def header(count, depth):
    return struct.pack("<4HI", 0xF30A, count, 4, depth, 0)


@pytest.mark.parametrize(
    "node",
    [
        header(1, 5) + struct.pack("<IIHH", 0, 1, 0, 0),
        header(65535, 0),
        header(2, 0) + struct.pack("<IHHI", 5, 1, 0, 100) + struct.pack("<IHHI", 1, 1, 0, 101),
        header(1, 0) + struct.pack("<IHHI", 0, 100, 0, 2**31),
        header(1, 0) + struct.pack("<IHHI", 0, 0, 0, 5),
        b"\0" * 60,
    ],
    ids=["no node there", "more than fit", "backwards", "beyond the disk", "empty", "not extents"],
)
def test_a_file_with_damaged_extents_is_left_out_and_the_rest_comes(pristine, tmp_path, node):
    damaged = extents_of(pristine, "sandbox/workspace/data.bin", node)
    result, problems = collected(damaged, tmp_path / "out")
    assert result.stopped is None and not (tmp_path / "out/workspace/data.bin").exists()
    assert any("workspace/data.bin" in problem for problem in problems)
    assert (tmp_path / "out/workspace/notes/a.md").is_file()


def test_a_tree_of_extents_that_points_at_itself_comes_to_an_end(pristine):
    fs = opened(pristine)
    offset = fs.spans(fs.find("sandbox/workspace/data.bin"))[0][0]
    content = extents_of(
        pristine, "sandbox/workspace/data.bin", header(1, 5) + struct.pack("<IIHH", 0, offset // BLOCK, 0, 0)
    )
    below = header(340, 4) + struct.pack("<IIHH", 0, offset // BLOCK, 0, 0) * 340
    content[offset : offset + len(below)] = below
    begin = time.monotonic()
    with pytest.raises(Unreadable):
        fs = opened(content)
        fs.spans(fs.find("sandbox/workspace/data.bin"))
    assert time.monotonic() - begin < 30


def test_a_file_that_claims_exabytes_is_left_out_and_named(pristine, tmp_path):
    content = bytearray(pristine)
    at = place_of_inode(content, opened(content).find("sandbox/workspace/holes").number)
    content[at + 0x6C : at + 0x70] = b"\xff\xff\xff\x7f"
    _, problems = collected(content, tmp_path / "out")
    assert any("workspace/holes" in problem and "bytes, more than" in problem for problem in problems)


def test_more_files_than_may_come_end_it_with_a_word(pristine, tmp_path):
    result, _ = collected(pristine, tmp_path / "out", files=3)
    assert "more than 3 files" in result.stopped


def test_a_partition_that_is_no_file_system_is_said(tmp_path):
    for content in (b"", bytes(8192), os.urandom(8192)):
        with pytest.raises(Unreadable):
            Ext4(io.BytesIO(content))


@pytest.mark.parametrize("seed", range(40))
def test_random_damage_never_makes_more_than_a_sentence(pristine, tmp_path, seed):
    chance = random.Random(seed)
    content = bytearray(pristine)
    table = place_of_inode(content, ROOT_INODE)
    for _ in range(chance.choice((1, 20, 400))):
        near = chance.choice(((1024, 2048), (BLOCK, BLOCK + 64), (table, table + 12_000), (0, len(content))))
        content[chance.randrange(*near)] = chance.randrange(256)
    try:
        result, problems = collected(content, tmp_path / "out")
    except Unreadable:
        return
    assert result.bytes <= 200 * (4 << 20) and len(problems) <= disk_archive.MAX_PROBLEMS + 5
    assert not any("the archive ends early" in problem for problem in problems)
    assert not any(path.is_symlink() for path in (tmp_path / "out").rglob("*"))
