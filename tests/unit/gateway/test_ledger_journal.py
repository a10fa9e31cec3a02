"""TESTS: what a power cut leaves of the ledger: all that was acknowledged, its journal being on the disk."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
from pathlib import Path

import pytest

from labkit.gateway import chain, files, journal, views
from labkit.gateway.ledger import Ledger

LEDGER, JOURNAL = "ledger.jsonl", "ledger.jsonl.journal"


def push(ledger: Ledger, *rows: dict) -> int:
    return ledger.accept({"run_id": "r", "events": list(rows)}).watermark


def rows(folder: Path) -> list[dict]:
    records = [json.loads(line) for line in (folder / LEDGER).read_bytes().splitlines()]
    return [record["body"] for record in records if record["kind"] == "event"]


def held(folder: Path) -> list[int]:
    return [row["id"] for row in rows(folder)]


class Disk:
    """Remembers what of each file was forced onto the disk: the rest is gone when the power is.

    fails: the file whose forcing fails. What was to be forced then counts as written, and is not there: only
    what is written again is.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.forced, self.fails = folder, {}, None
        self.acknowledged = 0  # bytes of the ledger, told by the test
        self.stale: tuple[int, int] | None = None
        overwrite = files.JsonLines.overwrite

        def again(lines: files.JsonLines, offset: int, data: bytes) -> None:
            overwrite(lines, offset, data)
            if self.stale and offset <= self.stale[0] and offset + len(data) >= self.stale[1]:
                self.stale = None

        patch.setattr(files.JsonLines, "overwrite", again)
        patch.setattr(journal, "_FORCED", 0)
        for module, name in ((files, "sync"), (journal, "sync"), (os, "fsync")):
            patch.setattr(module, name, self.force)

    def force(self, descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path.parent != self.folder:
            return
        if self.fails == path.name:
            if path.name == LEDGER and self.stale is None:
                self.stale = (len(self.forced[LEDGER]), self.acknowledged)
            raise OSError(errno.EIO, "input/output error")
        if path.is_file():
            data = path.read_bytes()
            if path.name == LEDGER and self.stale:
                begin, end = self.stale
                data = data[:begin] + bytes(end - begin) + data[end:]
            self.forced[path.name] = data

    def after_a_power_cut(self, target: Path, zeros: bool = False, written: tuple[str, ...] = ()) -> Path:
        """A folder as the next start finds it.

        zeros: the length was kept, what stood there was not. written: files that the system had written out
        by itself.
        """
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        for name in (LEDGER, JOURNAL):
            if (self.folder / name).exists():
                there = (self.folder / name).read_bytes() if name in written else self.forced[name]
                lost = (self.folder / name).stat().st_size - len(there)
                (target / name).write_bytes(there + bytes(lost if zeros else 0))
        return target


@pytest.fixture
def disk(tmp_path, monkeypatch):
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("which file is forced is read from /proc")
    (tmp_path / "run").mkdir()
    return Disk(tmp_path / "run", monkeypatch)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("room", [900, 2500, 1 << 20])
def test_whatever_was_acknowledged_is_there_after_a_power_cut_at_any_time(
    tmp_path, event, disk, monkeypatch, room, zeros
):
    monkeypatch.setattr(journal, "ROOM", room)
    chance, last = random.Random(room), 0
    ledger = Ledger(disk.folder, "r")
    for _ in range(40):
        size = chance.choice([1, 1, 1, 2, 7])
        assert push(ledger, *(event(last + n, sanitized_output="x" * 30) for n in range(1, size + 1)))
        last += size
        again = Ledger(disk.after_a_power_cut(tmp_path / "again", zeros), "r")
        assert (again.watermark, again._chain.broken) == (last, "")
        assert push(again, event(last + 1)) == last + 1, "and it goes on"
        assert held(tmp_path / "again") == list(range(1, last + 2))


def test_what_a_power_cut_had_taken_is_told(tmp_path, event, disk):
    ledger = Ledger(disk.folder, "r")
    push(ledger, event(1), event(2))
    Ledger(disk.after_a_power_cut(tmp_path / "again", False), "r")
    last = json.loads((tmp_path / "again" / LEDGER).read_bytes().splitlines()[-1])
    assert last["kind"] == "started" and last["body"]["restored"] > 0


def test_a_run_is_collected_with_what_a_power_cut_had_taken(tmp_path, event, disk):
    push(Ledger(disk.folder, "r"), event(1), event(2))
    found = disk.after_a_power_cut(tmp_path / "again", False)
    views.heal(found)
    assert held(found) == [1, 2] and not (found / JOURNAL).exists()
    assert len((found / "events.jsonl").read_bytes().splitlines()) == 2
    assert chain.end_of(found).n == 3


@pytest.mark.parametrize("name", [LEDGER, JOURNAL])
def test_a_disk_that_fails_takes_nothing_half_and_loses_nothing_accepted(
    tmp_path, event, disk, monkeypatch, name
):
    """The system calls a page clean once it told of an error, whether the disk has it or not."""
    monkeypatch.setattr(journal, "ROOM", 900)
    ledger, accepted = Ledger(disk.folder, "r"), 0
    for number in range(1, 31):
        disk.fails = name if number % 10 in (3, 4, 5) else None
        try:
            accepted = push(ledger, event(accepted + 1, sanitized_output=f"try {number}"))
            disk.acknowledged = (disk.folder / LEDGER).stat().st_size
        except OSError:
            assert disk.fails
        for written in ((), (JOURNAL,)):
            again = Ledger(disk.after_a_power_cut(tmp_path / "again", written=written), "r")
            assert again._chain.broken == "" and again.watermark in (accepted, accepted + 1)
            assert rows(tmp_path / "again")[:accepted] == rows(disk.folder)
    assert 15 <= accepted < 30


def test_half_a_frame_is_none(tmp_path, event, disk, monkeypatch):
    """The power went while a frame was written over one of the round before, of the same length."""
    monkeypatch.setattr(journal, "ROOM", 2500)
    ledger = Ledger(disk.folder, "r")
    for number in range(1001, 1020):
        push(ledger, event(number, sanitized_output=f"the text {number}"))
    before, acknowledged = dict(disk.forced), rows(disk.folder)
    push(ledger, event(1020, sanitized_output="the text 1020"))
    after, torn = disk.forced[JOURNAL], 0
    begin = next(at for at, byte in enumerate(after) if byte != before[JOURNAL][at])
    for cut in range(begin, begin + 500, 9):
        disk.forced = before | {JOURNAL: after[:cut] + before[JOURNAL][cut:]}
        again = Ledger(disk.after_a_power_cut(tmp_path / "again"), "r")
        assert again._chain.broken == ""
        assert rows(tmp_path / "again") in (acknowledged, rows(disk.folder))
        torn += rows(tmp_path / "again") == acknowledged
    assert torn > 10


def test_a_journal_goes_with_its_ledger_and_none_is_left_behind(tmp_path, event):
    ledger = Ledger(tmp_path, "r")
    assert (tmp_path / JOURNAL).stat().st_mode & 0o077 == 0
    push(ledger, event(1))
    ledger.close()
    assert not (tmp_path / JOURNAL).exists()


def test_without_room_for_a_journal_the_ledger_is_forced_itself(tmp_path, event, disk):
    disk.fails = JOURNAL
    ledger = Ledger(disk.folder, "r")
    push(ledger, event(1))
    assert disk.forced[LEDGER] == (disk.folder / LEDGER).read_bytes()


def test_a_journal_of_another_ledger_changes_nothing(tmp_path, event):
    """What does not follow from the file's own bytes is not believed: it lost more than a power cut takes."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    ledger = Ledger(tmp_path / "one", "r")
    push(ledger, *(event(n) for n in range(1, 20)))
    ledger.close()
    ledger = Ledger(tmp_path / "one", "r")
    push(ledger, event(20))
    Ledger(tmp_path / "other", "r").close()
    before = (tmp_path / "other" / LEDGER).read_bytes()
    shutil.copy(tmp_path / "one" / JOURNAL, tmp_path / "other")
    views.heal(tmp_path / "other")
    assert (tmp_path / "other" / LEDGER).read_bytes() == before
