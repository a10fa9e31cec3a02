"""TESTS: what `lab collect` leaves in runs/, and what it refuses to touch."""

import hashlib
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import synthetic_run
from tars import Pipe, archive, folder, member

from labkit import runs
from labkit.errors import LabError
from labkit.untar import Limits

RUN = synthetic_run.RUN_ID
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    path = tmp_path_factory.mktemp("record") / "run.db"
    synthetic_run.database(path, steps=12)
    return path.read_bytes()


@pytest.fixture
def target(tmp_path):
    return tmp_path / "runs" / RUN


def from_guest(record, *more, **kwargs):
    members = [member("run.db", record), member("mirror.db", record), folder("workspace"), folder("backup")]
    odd = member("workspace/notes/odd \\ name\nwith a break\r.md", b"odd")
    summary = member(
        "summary.json", b'{"steps": 12, "elapsed_seconds": 7224, "cost_usd": 0.5, "stop_reason": "x"}'
    )
    return Pipe(archive(*members, odd, summary, member("outputs/1.txt"), *more, **kwargs), most=65536)


def receive(target, stream, **kwargs):
    gateway = target.parent.parent / "gateway"
    (gateway / "deep").mkdir(parents=True, exist_ok=True)
    (gateway / "events.jsonl").write_text("{}\n")
    (gateway / "deep" / "x.log").write_text("y")
    if not (gateway / "link").is_symlink():
        (gateway / "link").symlink_to("/etc/passwd")
    extra = {"gateway": gateway, "console.log": b"login:"}
    return runs.receive(stream, target, extra, {"kit": "0.1.0"}, **kwargs)


def manifest(target):
    return json.loads((target / "manifest.json").read_text())


def test_a_collected_run_has_what_guest_and_host_gave_and_sha256sum_agrees(target, record):
    assert receive(target, from_guest(record, gz=True)) == target
    assert {path.name for path in target.iterdir()} == {
        *("run.db", "mirror.db", "workspace", "backup", "summary.json", "outputs"),
        *("gateway", "console.log", "manifest.json", "SHA256SUMS"),
    }
    checked = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=target, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    files = [path for path in target.rglob("*") if path.is_file()]
    assert len(checked.stdout.splitlines()) == len(files) - 1 == 9
    assert runs.verify_sums(target).problems == ()
    assert not list(target.parent.glob(".*"))


def test_the_manifest_keeps_the_callers_facts_and_says_what_was_found(target, record):
    receive(
        target, from_guest(record, member("extra.bin"), member("workspace/l", b"", type=b"2", linkname="/x"))
    )
    found = manifest(target)
    assert (found["kit"], found["run_id"]) == ("0.1.0", RUN)
    assert found["extraction"]["complete"] is True
    assert found["databases"]["run.db"]["integrity"] == "ok"
    assert found["databases"]["mirror.db"]["tables"]["execution_logs"] > 30
    assert [entry["name"] for entry in found["skipped"]] == ["extra.bin", "workspace/l", "gateway/link"]


def test_the_manifest_holds_the_prompts_of_the_run_with_hashes_made_here(target, record):
    receive(target, from_guest(record))
    digest = hashlib.sha256(b"You work alone.").hexdigest()
    assert manifest(target)["prompts"] == {"worker": {"sha256": digest, "content": "You work alone."}}


def test_a_view_in_the_place_of_the_prompts_is_not_run(target, tmp_path, record):
    path = tmp_path / "hostile.db"
    path.write_bytes(record)
    with closing(sqlite3.connect(path)) as database:
        database.execute("DROP TABLE prompts")
        endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
        database.execute(
            f"CREATE VIEW prompts AS {endless} SELECT x AS name, x AS content FROM n WHERE x < 0"
        )
        database.commit()
    receive(target, from_guest(path.read_bytes()))
    assert manifest(target)["prompts"] == {} and manifest(target)["extraction"]["complete"] is True


def test_a_whole_run_is_never_overwritten(target, record):
    receive(target, from_guest(record))
    before = runs.verify_sums(target)
    with pytest.raises(LabError, match="collected already"):
        receive(target, from_guest(record, member("workspace/forged")))
    assert runs.verify_sums(target) == before
    assert not (target / "workspace/forged").exists()


def test_a_folder_that_is_no_run_is_left_alone(target, record):
    target.mkdir(parents=True)
    (target / "mine.txt").write_text("mine")
    with pytest.raises(LabError, match="no collected run"):
        receive(target, from_guest(record))
    assert [path.name for path in target.iterdir()] == ["mine.txt"]


def test_what_an_interrupted_collect_left_is_removed_first(target, record):
    leftover = target.parent / f".{RUN}.partial" / "workspace"
    leftover.mkdir(parents=True)
    (leftover / "old").write_text("old")
    receive(target, from_guest(record))
    assert not (target / "workspace/old").exists()
    assert runs.verify_sums(target).ok


def test_a_broken_archive_is_kept_as_incomplete_and_a_whole_one_takes_its_place(target, record):
    last = member("outputs/b", bytes(30000))
    cut = archive(member("run.db", record), member("workspace/a", b"first"), last)
    receive(target, Pipe(cut[:-20000], most=65536))
    assert manifest(target)["extraction"]["complete"] is False
    assert "broke off" in manifest(target)["extraction"]["stopped"]
    assert [info.complete for info in runs.list_runs(target.parent)] == [False]
    receive(target, from_guest(record))
    assert manifest(target)["extraction"]["complete"] is True
    kept = target.parent / f"{RUN}.incomplete-1"
    assert (kept / "workspace/a").read_bytes() == b"first"
    assert runs.verify_sums(kept).ok


def test_an_archive_over_the_limit_is_kept_and_says_so(target, record):
    receive(target, from_guest(record), limits=Limits(total_bytes=len(record) + 10))
    assert manifest(target)["extraction"]["stopped"].startswith("more than")
    assert not (target / "mirror.db").exists()


@pytest.mark.parametrize("bad", ["noise", "header only", "cut", "not a record", "missing"])
def test_a_record_that_does_not_hold_is_kept_and_named(target, record, tmp_path, bad):
    empty = tmp_path / "empty.db"
    with sqlite3.connect(empty) as other:
        other.execute("CREATE TABLE something (else_ TEXT)")
    content = {
        "noise": os.urandom(9000),
        "header only": b"SQLite format 3\0" + os.urandom(9000),
        "cut": record[: len(record) // 2],
        "not a record": empty.read_bytes(),
    }
    members = [member("run.db", content[bad])] if bad in content else []
    receive(target, Pipe(archive(*members, member("outputs/a")), most=65536))
    assert manifest(target)["databases"]["run.db"]["integrity"] != "ok"
    assert manifest(target)["extraction"]["complete"] is False
    assert runs.verify_sums(target).ok


def test_a_console_without_end_is_cut_and_listed(target, record, tmp_path):
    console = tmp_path / "console.log"
    console.write_bytes(b"x" * 300_000)
    runs.receive(from_guest(record), target, {"console.log": console}, {}, Limits(file_bytes=200_000))
    assert (target / "console.log").stat().st_size == 200_000
    assert manifest(target)["skipped"] == [{"name": "console.log", "reason": "cut after 200000 bytes"}]


def test_a_host_that_cannot_write_says_so_and_keeps_no_half_copy(target, record):
    """RLIMIT_FSIZE stands in for a full disk: both are an OSError in the middle of a file."""
    program = f"""
import io, resource, sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests/support")!r}]
import tars
from pathlib import Path
from labkit import runs
from labkit.errors import LabError
stream = io.BytesIO(tars.archive(tars.member("run.db", bytes(30000))))
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
try:
    runs.receive(stream, Path({str(target)!r}), {{"console.log": bytes(12_000)}}, {{}})
except LabError as error:
    print(error)
"""
    for limit in ("4000", "10000"):
        done = subprocess.run([sys.executable, "-c", program, limit], capture_output=True, text=True)
        assert "cannot be written: File too large" in done.stdout, done.stderr
        assert "make room" in done.stdout
        assert list(target.parent.iterdir()) == []


def test_two_collects_at_once_do_not_mix(target, record):
    class Meddling:
        """Starts a second collect in the middle of the first."""

        def __init__(self, inner):
            self.inner, self.refused = inner, None

        def read(self, size=-1):
            if self.refused is None:
                with pytest.raises(LabError) as caught:
                    receive(target, from_guest(record))
                self.refused = caught.value.message
            return self.inner.read(size)

    stream = Meddling(from_guest(record))
    receive(target, stream)
    assert stream.refused.startswith("another collect is writing")
    assert runs.verify_sums(target).problems == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as `sudo lab collect` has")
def test_under_sudo_the_run_belongs_to_the_person_who_typed_it(target, record, monkeypatch):
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "2345")
    receive(target, from_guest(record))
    owned = [target.parent, target, *target.rglob("*")]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in owned} == {(1234, 2345)}


def test_changed_missing_and_added_files_are_told_apart(target, record):
    receive(target, from_guest(record))
    (target / "outputs/1.txt").write_text("y")
    (target / "console.log").unlink()
    (target / "mine.txt").write_text("a remark")
    check = runs.verify_sums(target)
    assert {(p.path, p.kind) for p in check.problems} == {
        ("outputs/1.txt", "altered"),
        ("console.log", "missing"),
        ("mine.txt", "unlisted"),
    }
    assert not check.ok


def test_a_run_without_sums_cannot_be_verified(tmp_path):
    with pytest.raises(LabError) as caught:
        runs.verify_sums(tmp_path)
    assert caught.value.code == 6
