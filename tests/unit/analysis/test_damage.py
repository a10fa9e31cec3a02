"""TESTS: bytes flipped at random in an archive or a record give an answer or a sentence, never a crash."""

import io
import os
import random
import tarfile

import pytest
import synthetic_run
from tars import archive, member

from labkit.analysis import load, sqlite_file
from labkit.errors import LabError
from labkit.untar import Limits, extract

LIMITS = Limits(total_bytes=2_000_000, file_bytes=1_000_000, stream_bytes=4_000_000, files=50)


def flipped(content, luck, most=6, near=None):
    damaged = bytearray(content)
    for _ in range(luck.randint(1, most)):
        damaged[luck.randrange(near or len(damaged))] = luck.choice(
            [0, 0xFF, 0x80, ord("/"), luck.randrange(256)]
        )
    return bytes(damaged)


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_a_flipped_archive_never_writes_outside_or_raises(tmp_path, form):
    long = member("workspace/" + "n" * 120, b"long", linkname="")
    odd = member("workspace/größe", b"odd", pax_headers={"GNU.sparse.map": "0,1", "comment": "x"})
    raw = archive(member("run.db", b"record"), long, odd, member("outputs/a"), form=form)
    useful, luck = len(raw) - 8192, random.Random(form)
    for number in range(150):
        into = tmp_path / "outer" / str(number)
        into.mkdir(parents=True)
        result = extract(io.BytesIO(flipped(raw, luck, near=max(useful, 4096))), into, LIMITS)
        found = [path for path in into.rglob("*") if not path.is_dir()]
        assert {path.relative_to(into).as_posix() for path in found} == set(result.sums)
        assert all(path.is_file() and not path.is_symlink() for path in found)
    assert sorted(os.listdir(tmp_path)) == ["outer"]
    assert len(os.listdir(tmp_path / "outer")) == 150


def test_a_record_with_flipped_bytes_is_read_or_named_as_damaged(tmp_path):
    folder, _ = synthetic_run.build(tmp_path, steps=30)
    content, luck = (folder / "run.db").read_bytes(), random.Random(3)
    outcomes = set()
    for number in range(80):
        (folder / "run.db").write_bytes(flipped(content, luck, near=len(content) if number % 2 else 4096))
        try:
            load.query(folder, "event_types")
            outcomes.add("read")
        except LabError as error:
            assert error.code == 6 and error.message.isprintable()
            outcomes.add("named")
        assert isinstance(sqlite_file.integrity(folder / "run.db")["integrity"], str)
    assert outcomes == {"read", "named"}
