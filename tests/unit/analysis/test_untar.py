"""TESTS: an archive from a hostile guest can do nothing but end early."""

import io
import os
import stat
import subprocess
import tarfile
from types import SimpleNamespace

import pytest
from tars import Pipe, archive, folder, member

from labkit.untar import Limits, extract

GOOD = member("run.db", b"record")


def unpack(tmp_path, *members, limits=None, **kwargs):
    into = tmp_path / "into"
    into.mkdir()
    return into, extract(Pipe(archive(*members, **kwargs)), into, limits)


def everything_below(path):
    return sorted(p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file() or p.is_symlink())


@pytest.mark.parametrize("gz", [False, True])
def test_an_honest_archive_comes_out_whole(tmp_path, gz):
    note = member("./workspace/notes/größe.md", "grün\n".encode() * 5000, mode=0o600, mtime=1_700_000_000)
    script = member("./workspace/scripts/a.py", b"print()", mode=0o4755)
    into, result = unpack(tmp_path, folder("."), GOOD, folder("./workspace"), note, script, gz=gz)
    assert result.stopped is None and result.skipped == []
    assert set(result.sums) == {"run.db", "workspace/notes/größe.md", "workspace/scripts/a.py"}
    written = into / "workspace/notes/größe.md"
    assert written.read_bytes() == "grün\n".encode() * 5000
    assert written.stat().st_mtime == 1_700_000_000
    assert stat.S_IMODE(written.stat().st_mode) == 0o644
    assert stat.S_IMODE((into / "workspace/scripts/a.py").stat().st_mode) == 0o755
    assert written.stat().st_uid == os.getuid()


HOSTILE = {
    "symbolic link": (
        member("workspace/l", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        "symbolic link",
    ),
    "hard link": (member("workspace/h", b"", type=tarfile.LNKTYPE, linkname="run.db"), "hard link"),
    "device": (member("workspace/d", b"", type=tarfile.CHRTYPE, devmajor=1, devminor=3), "device"),
    "disk": (member("workspace/b", b"", type=tarfile.BLKTYPE, devmajor=8), "device"),
    "fifo": (member("workspace/f", b"", type=tarfile.FIFOTYPE), "pipe"),
    "absolute path": (member("/tmp/lab-untar-was-here"), "absolute"),
    "path that climbs": (member("workspace/../../lab-untar-was-here"), "leaves the tree"),
    "climb inside": (member("workspace/a/../b"), "leaves the tree"),
    "long name": (member("workspace/" + "a" * 256), "too long"),
    "long path": (member("workspace/" + "a/" * 600 + "b"), "too long"),
    "deep path": (member("workspace/" + "a/" * 120 + "b"), "too long"),
    "unexpected top": (member("gateway/events.jsonl"), "not expected"),
    "sums of its own": (member("SHA256SUMS"), "not expected"),
    "manifest of its own": (member("manifest.json"), "not expected"),
    "live journal": (member("run.db-wal"), "not expected"),
    "file for a folder": (member("workspace"), "must be a folder"),
    "folder for a file": (folder("mirror.db"), "must be a file"),
    "below a file": (member("mirror.db/x"), "must be a file"),
    "giant": (member("workspace/big", b"x" * 3000), "more than 2000 for one file"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_no_plain_file_of_a_run_is_skipped_and_listed(tmp_path, what):
    bad, reason = HOSTILE[what]
    after = member("workspace/after", b"still read")
    into, result = unpack(tmp_path, GOOD, bad, after, limits=Limits(file_bytes=2000))
    assert everything_below(into) == ["run.db", "workspace/after"]
    assert [reason in entry["reason"] for entry in result.skipped] == [True]
    assert result.stopped is None
    assert not (tmp_path / "lab-untar-was-here").exists()


def test_a_link_cannot_be_used_as_a_folder(tmp_path):
    link = member("workspace/out", b"", type=tarfile.SYMTYPE, linkname=str(tmp_path))
    into, result = unpack(tmp_path, link, member("workspace/out/evil"))
    assert not (tmp_path / "evil").exists()
    assert (into / "workspace/out/evil").read_bytes() == b"x"
    assert result.skipped[0]["reason"] == f"symbolic link to {tmp_path}"


def test_a_nul_in_a_long_name_is_refused(tmp_path):
    raw = archive(GOOD, member("workspace/a", pax_headers={"path": "workspace/a_b"}))
    into = tmp_path / "into"
    into.mkdir()
    result = extract(io.BytesIO(raw.replace(b"path=workspace/a_b", b"path=workspace/a\0b")), into)
    assert result.skipped == [{"name": "workspace/a\\x00b", "reason": "NUL in the name"}]


def test_a_name_that_comes_twice_keeps_its_first_content(tmp_path):
    into, result = unpack(
        tmp_path, GOOD, member("run.db", b"forged"), member("workspace/a"), folder("workspace/a")
    )
    assert (into / "run.db").read_bytes() == b"record"
    assert (into / "workspace/a").is_file()
    assert [entry["name"] for entry in result.skipped] == ["run.db", "workspace/a"]


def test_too_many_bytes_end_the_extraction_and_what_is_there_stays(tmp_path):
    into, result = unpack(
        tmp_path,
        GOOD,
        member("workspace/a", b"x" * 900),
        member("workspace/b", b"x" * 200),
        limits=Limits(1000),
    )
    assert everything_below(into) == ["run.db", "workspace/a"]
    assert result.stopped == "more than 1000 bytes in all; stopped at workspace/b"


def test_too_many_files_end_the_extraction(tmp_path):
    many = [member(f"outputs/{number}", b"") for number in range(50)]
    into, result = unpack(tmp_path, *many, limits=Limits(files=10))
    assert len(everything_below(into)) == 9
    assert result.stopped.startswith("more than 10 files")


def test_skipped_members_are_counted_when_the_list_is_full(tmp_path, monkeypatch):
    monkeypatch.setattr("labkit.untar.MAX_LISTED", 3)
    _, result = unpack(tmp_path, *[member(f"x{number}") for number in range(8)])
    assert (len(result.skipped), result.skipped_count) == (3, 8)


def test_a_gzip_bomb_is_not_read_to_its_end(tmp_path):
    bomb = archive(GOOD, member("workspace/zeros", bytes(30_000_000)), gz=True)
    into = tmp_path / "into"
    into.mkdir()
    result = extract(io.BytesIO(bomb), into, Limits(file_bytes=1000, stream_bytes=2_000_000))
    assert everything_below(into) == ["run.db"]
    assert result.stopped == "the archive is longer than 2000000 bytes"


def test_a_dripping_stream_is_ended_and_what_came_is_kept(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("labkit.tarstream.time", SimpleNamespace(monotonic=lambda: now[0]))

    class Dripping(Pipe):
        def read(self, size=-1):
            if self.given > 2048:
                now[0] += 0.3
            return super().read(size)

    drip = Dripping(archive(GOOD, member("workspace/a", bytes(100_000))), most=512)
    result = extract(drip, tmp_path, Limits(seconds=0.2))
    assert result.stopped == "the archive took longer than 0.2 s"
    assert everything_below(tmp_path) == ["run.db"]


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_a_header_that_claims_gigabytes_is_never_held_in_memory(tmp_path, kind):
    liar = tarfile.TarInfo("workspace/liar")
    liar.type, liar.size = kind, 3 * 1024**3
    raw = archive(GOOD)[:1024] + liar.tobuf(tarfile.GNU_FORMAT)
    pipe = Pipe(raw + bytes(4_000_000), most=100_000)
    into = tmp_path / "into"
    into.mkdir()
    result = extract(pipe, into)
    assert everything_below(into) == ["run.db"]
    assert "a header claims 3221225472 bytes" in result.stopped
    assert pipe.given < 1_000_000


def test_a_thousand_headers_inside_each_other_are_survived(tmp_path):
    header = tarfile.TarInfo.create_pax_global_header({"a": "b"})
    nested = archive(GOOD)[:1024] + header * 3000
    into = tmp_path / "into"
    into.mkdir()
    result = extract(io.BytesIO(nested + archive(member("workspace/a"))), into)
    assert list(result.sums) == ["run.db"]
    assert "RecursionError" in result.stopped


def test_a_sparse_file_comes_out_expanded_when_small_and_is_skipped_when_a_giant(tmp_path):
    small, giant = tmp_path / "small", tmp_path / "giant"
    for path, size in ((small, 300_000), (giant, 10**12)):
        with path.open("wb") as file:
            file.truncate(size)
            file.seek(size // 2)
            file.write(b"here")
    raw = gnu_tar(tmp_path, "small", "giant")
    into = tmp_path / "into"
    into.mkdir()
    result = extract(io.BytesIO(raw), into, Limits(file_bytes=10**6))
    assert (into / "workspace/small").read_bytes() == small.read_bytes()
    assert [entry["name"] for entry in result.skipped] == ["workspace/giant"]
    assert result.stopped is None


def old_sparse(blocks):
    """The header of a GNU sparse file, with so many blocks of its map behind it."""
    info = tarfile.TarInfo("workspace/holes")
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[482] = 1  # its map goes on
    header[483:495] = b"00000002000\0"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    piece = b"00000000001\0" * 2 * 21
    return bytes(header) + (piece + b"\1" + bytes(7)) * (blocks - 1) + piece + bytes(8)


def new_sparse(pieces):
    """A sparse file of the pax kind whose map has so many pieces."""
    facts = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "5"}
    return archive(member("workspace/holes", b"%d\n" % pieces + b"0\n" * 2 * pieces, pax_headers=facts))


@pytest.mark.parametrize("raw", [old_sparse(10_000), new_sparse(2_000_000)], ids=["gnu", "pax"])
def test_a_map_of_a_sparse_file_is_not_read_without_end(tmp_path, raw):
    """Each piece of it takes some hundred bytes of memory."""
    stream = Pipe(archive(GOOD)[:1024] + raw, most=65536)
    result = extract(stream, tmp_path)
    assert "headers of one file are longer" in result.stopped and list(result.sums) == ["run.db"]
    assert stream.given < 3 << 20 < len(raw)


def test_headers_that_name_each_other_without_end_take_little_memory(tmp_path):
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 1 << 20
    comment = f"{info.size} comment=".ljust(info.size - 1, "x") + "\n"
    header = info.tobuf(tarfile.USTAR_FORMAT) + comment.encode()
    result = extract(io.BytesIO(archive(GOOD)[:1024] + header * 6), tmp_path)
    assert "headers of one file are longer" in result.stopped


def test_a_map_in_no_order_is_skipped(tmp_path):
    facts = {"GNU.sparse.map": "4,1,2,1,0,1", "GNU.sparse.size": "5", "GNU.sparse.name": "workspace/odd"}
    odd = member("workspace/holes", b"abc", pax_headers=facts)
    into, result = unpack(tmp_path, GOOD, odd, member("workspace/after"))
    assert [entry["reason"] for entry in result.skipped] == ["odd map of a sparse file"]
    assert everything_below(into) == ["run.db", "workspace/after"] and result.stopped is None


def gnu_tar(folder, *names):
    command = [
        "tar",
        "--sparse",
        "--format=pax",
        "--transform",
        "s,^,workspace/,",
        "-C",
        str(folder),
        "-cf",
        "-",
    ]
    return subprocess.run([*command, *names], check=True, capture_output=True).stdout


@pytest.mark.parametrize("gz", [False, True])
def test_an_archive_cut_anywhere_keeps_whole_files_and_says_that_it_broke_off(tmp_path, gz):
    members = [member(f"outputs/{n}", os.urandom(700)) for n in range(4)]
    raw = archive(*members, gz=gz)
    content = {info.name: data for info, data in members}
    useful = len(raw) if gz else 4 * 1536 + 512
    for cut in range(0, useful, 97):
        into = tmp_path / str(cut)
        into.mkdir()
        result = extract(Pipe(raw[:cut]), into)
        assert result.stopped is not None, cut
        assert all((into / name).read_bytes() == content[name] for name in everything_below(into))
        assert everything_below(into) == sorted(result.sums)


def test_noise_is_no_archive(tmp_path):
    for noise in (
        b"",
        b"\x1f",
        b"\x1f\x8b",
        b"\x1f\x8bgarbage" * 50,
        os.urandom(5000),
        b"ssh: broken pipe\n",
    ):
        assert extract(io.BytesIO(noise), tmp_path).stopped
    assert everything_below(tmp_path) == []


def test_a_damaged_header_in_the_middle_is_noticed(tmp_path):
    raw = bytearray(archive(GOOD, member("outputs/a"), member("outputs/b"), form=tarfile.GNU_FORMAT))
    raw[1024 + 150] ^= 0xFF
    result = extract(io.BytesIO(bytes(raw)), tmp_path)
    assert everything_below(tmp_path) == ["run.db"]
    assert "damaged" in result.stopped


def test_names_for_lists_cannot_act_on_a_terminal(tmp_path):
    _, result = unpack(tmp_path, member("\x1b]0;owned\x07/x"), member("evil\udcff\nname"))
    assert all(entry["name"].isprintable() for entry in result.skipped)
    assert result.skipped[0]["name"] == "\\x1b]0;owned\\x07/x"
