"""TESTS: what a receipt accepts as proof, and what a damaged set is called."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from labkit import boot, disks, receipt_checks, session, snapshot, state
from labkit.errors import EVIDENCE, LabError
from labkit.receipt import Receipt


def receipt(**checks: bool) -> Receipt:
    made = Receipt("unit", "2026-11-29T18:00:00Z", seconds={"total": 4.2})
    for name, holds in checks.items():
        made.check(name, holds, f"about {name}")
    return made


def test_a_receipt_holds_only_when_every_check_does():
    assert receipt(clock=True, marker=True).holds
    assert receipt(clock=True, marker=False).broken == ["marker: about marker"]


def test_a_good_receipt_is_one_line_for_a_person():
    assert receipt(clock=True).line() == "reverted 'unit' in 4.2 s (resumed): all 1 checks hold"


def test_a_cold_boot_says_why():
    made = receipt(clock=True)
    made.mode, made.reason = "cold boot", "taken on QEMU 7.2.0, this host has 8.0.0"
    assert "(cold boot: taken on QEMU 7.2.0, this host has 8.0.0)" in made.line()


def test_a_broken_receipt_ends_with_the_exit_code_of_evidence_and_names_what():
    with pytest.raises(LabError, match="marker: about marker") as caught:
        receipt(clock=True, marker=False).demand()
    assert caught.value.code == EVIDENCE
    assert "NOT PROVEN" in receipt(marker=False).line()
    receipt(clock=True).demand()


def test_the_receipt_as_json_says_whether_it_holds():
    written = json.loads(json.dumps(receipt(clock=False).as_dict()))
    assert written["holds"] is False and written["broken"] == ["clock: about clock"]
    assert written["checks"]["clock"] == {"holds": False, "detail": "about clock"}


@pytest.mark.parametrize(
    ("answer", "error"),
    [("1000.5", 0.0), ("1003.0", 2.0), ("998.0", 2.0), ("1000.0", 0.0), ("1001.0", 0.0)],
)
def test_the_clocks_error_is_what_lies_outside_the_moment_it_was_read(answer, error):
    assert receipt_checks._clock_error(answer, before=1000.0, after=1001.0) == pytest.approx(error)


@pytest.mark.parametrize("answer", ["", "date: not found", "nan"])
def test_a_clock_that_cannot_be_read_is_infinitely_wrong(answer):
    assert not receipt_checks._clock_error(answer, 1000.0, 1001.0) <= receipt_checks.MAX_CLOCK_ERROR_SECONDS


def test_the_guest_is_asked_for_clock_marker_address_and_boot_in_one_go(tmp_path):
    old, new = tmp_path / "old marker", tmp_path / "new"
    old.touch()
    environment = {"PATH": os.environ["PATH"], "SSH_CONNECTION": "192.0.2.1 5 192.0.2.9 22"}
    line = ["bash", "-c", receipt_checks._question(str(old), str(new))]
    done = subprocess.run(line, capture_output=True, text=True, env=environment, check=True)
    clock, *rest = done.stdout.splitlines()
    assert abs(float(clock) - time.time()) < 60 and new.exists()
    assert rest == ["there", "192.0.2.9", "written", Path(boot.BOOT_ID).read_text().strip()]
    assert boot.named(rest[-1]) == rest[-1] and boot.named("bash: no such file") == ""


@pytest.fixture
def frozen(lab, with_manifest):
    """A set of two small files with the hashes they had when it was taken."""
    lab.set_dir.mkdir(parents=True)
    for name in ("system.qcow2", "ram.save"):
        (lab.set_dir / name).write_text(f"what {name} holds")
    hashes = {name: disks.sha256(lab.set_dir / name) for name in ("system.qcow2", "ram.save")}
    return with_manifest(lab, sha256=hashes)


def test_one_changed_byte_of_a_frozen_file_shows(lab, frozen):
    place, go = session.place(lab), threading.Event()
    go.set()
    assert receipt_checks.frozen_hashes(place, frozen, go) == frozen["sha256"]
    (lab.set_dir / "system.qcow2").write_text("what system.qcow2 h0lds")
    found = receipt_checks.frozen_hashes(place, frozen, go)
    assert [name for name in found if found[name] != frozen["sha256"][name]] == ["system.qcow2"]


def test_a_snapshot_of_another_version_of_the_kit_is_not_resumed(lab, with_manifest):
    lab.set_dir.mkdir(parents=True)
    with_manifest(lab, format=snapshot.FORMAT - 1)
    with pytest.raises(LabError, match="another version of the kit") as caught:
        snapshot.require_verified(session.place(lab))
    assert "lab up" in caught.value.hint


def test_a_set_that_lost_a_file_is_refused_before_the_guest_is_touched(lab, frozen):
    (lab.set_dir / "ram.save").unlink()
    with pytest.raises(LabError, match=r"is damaged: ram\.save is missing") as caught:
        snapshot.revert(session.place(lab))
    assert caught.value.code == EVIDENCE and "lab up" in caught.value.hint


@pytest.mark.parametrize("text", ["{half", "[]", '{"verified": true}', "null"])
def test_a_damaged_manifest_is_named_with_the_way_out(lab, text):
    lab.set_dir.mkdir(parents=True)
    (lab.set_dir / "manifest.json").write_text(text)
    with pytest.raises(LabError, match=r"manifest\.json is damaged") as caught:
        snapshot.manifest(session.place(lab))
    assert "lab down" in caught.value.hint


def test_without_a_set_the_sentence_says_what_takes_one(lab):
    with pytest.raises(LabError, match="has no snapshot") as caught:
        snapshot.require_verified(session.place(lab))
    assert "lab up" in caught.value.hint


def test_marking_a_set_verified_keeps_what_the_manifest_said(lab, with_manifest):
    before = with_manifest(lab, verified=False)
    snapshot.mark_verified(session.place(lab))
    after = snapshot.manifest(session.place(lab))
    assert after["verified"] is True and after["sha256"] == before["sha256"]
    assert state.read(lab.dir)["fingerprint"] == after["fingerprint"]


def test_a_set_is_replaced_by_a_whole_one_and_the_old_one_goes(tmp_path):
    old, new = tmp_path / "set", tmp_path / "set.new"
    for folder, text in ((old, "old"), (new, "new")):
        folder.mkdir()
        (folder / "manifest.json").write_text(text)
    snapshot._replace_folder(new, old)
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
    assert (old / "manifest.json").read_text() == "new"
