"""TESTS: `lab run --resume`: which run may go on, what the guest's answer means, what the gateway keeps."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from labkit import advice, guest, ownership, plan, resume, session, state
from labkit.boot import BOOT_ID
from labkit.errors import NOT_READY, UNREACHABLE, USAGE, LabError
from labkit.gateway.config import GatewayConfig, token_hash
from labkit.progress import Progress

RUN_ID = "20261129-201202-b0dd88"
OTHER = "20261130-080000-aaaaaa"
TOKEN = "the-token-of-this-run"
BOOT = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
HELD = resume.Held(active=False, run=RUN_ID, sealed=False, token_sha256=None)


@pytest.fixture
def folder(lab):
    """The host's folder of an unfinished run that is in the guest."""
    wanted = dataclasses.replace(plan.make(lab, minutes=60, model="rehearsal"), run_id=RUN_ID)
    made = lab.gateway_dir / RUN_ID
    made.mkdir(parents=True)
    state.write_json(made / "run.json", plan.harness_settings(lab, wanted))
    plan.gateway_config(lab, wanted, TOKEN).save(made)
    state.update(lab.dir, run=RUN_ID, collected=False, dirty=True)
    return made


def refused(lab, which="last") -> LabError:
    with pytest.raises(LabError) as caught:
        resume.demand_unfinished(lab, which)
    return caught.value


@pytest.mark.parametrize("which", ["last", RUN_ID, RUN_ID[:12]])
def test_the_unfinished_run_of_the_guest_may_go_on(lab, folder, which):
    assert resume.demand_unfinished(lab, which) == folder


def test_without_a_run_there_is_nothing_to_go_on_with(lab):
    assert "no run is in the guest" in refused(lab).message


@pytest.mark.parametrize("which", [OTHER, ""])
def test_another_run_than_the_one_in_the_guest_is_refused_and_the_right_one_named(lab, folder, which):
    error = refused(lab, which)
    assert error.code == USAGE and f"--resume {RUN_ID}" in error.hint


def test_a_collected_run_is_over(lab, folder):
    state.update(lab.dir, collected=True)
    assert "was collected" in refused(lab).message and "lab run" in refused(lab).hint


def test_a_sealed_run_is_over_and_its_reason_is_said(lab, folder):
    row = {"id": 9, "event_type": "RUN_SEALED", "sanitized_output": '{"stop_reason": "report delivered"}'}
    (folder / "events.jsonl").write_text(json.dumps(row) + "\n")
    error = refused(lab)
    assert "is sealed (report delivered)" in error.message and "lab collect" in error.hint


@pytest.mark.parametrize("file", ["run.json", "gateway.json"])
def test_a_run_whose_settings_are_lost_cannot_go_on_but_can_be_collected(lab, folder, file):
    (folder / file).unlink()
    assert "lacks run.json or gateway.json" in refused(lab).message and "lab collect" in refused(lab).hint


def test_a_guest_that_holds_another_run_is_not_given_this_ones_settings():
    held = resume.Held(active=False, run=OTHER, sealed=False, token_sha256=None)
    with pytest.raises(LabError, match=f"holds run {OTHER}, not {RUN_ID}") as caught:
        resume.demand_same(RUN_ID, held, "unit")
    assert "`lab collect --stop`" in caught.value.hint


def test_a_run_that_the_guest_sealed_without_being_heard_is_over():
    held = resume.Held(active=False, run=RUN_ID, sealed=True, token_sha256=None)
    with pytest.raises(LabError, match="sealed in the guest") as caught:
        resume.demand_same(RUN_ID, held, "unit")
    assert "`lab collect --stop`" in caught.value.hint  # the host never heard: without --stop it may refuse


def test_a_guest_without_a_record_yet_may_begin():
    resume.demand_same(RUN_ID, resume.Held(active=False, run=None, sealed=False, token_sha256=None), "unit")


def test_a_living_session_keeps_its_token_only_where_the_gateway_knows_it(folder):
    config = GatewayConfig.load(folder)
    resume.demand_token(RUN_ID, resume.Held(True, RUN_ID, False, token_hash(TOKEN)), config)
    with pytest.raises(LabError, match="token that its gateway does not know"):
        resume.demand_token(RUN_ID, resume.Held(True, RUN_ID, False, token_hash("another")), config)


def test_the_gateway_goes_on_with_the_same_settings_and_no_time_lost(folder):
    before = dataclasses.replace(GatewayConfig.load(folder), started_at="2020-01-01T00:00:00+00:00")
    (folder / "events.jsonl").write_text("")
    hour_ago = time.time() - 3600
    os.utime(folder / "events.jsonl", (hour_ago, hour_ago))
    after = resume._continued(folder, before, HELD, None)
    assert 3600 <= after.downtime_seconds < 3700 and after.token_sha256 == before.token_sha256
    assert dataclasses.replace(after, downtime_seconds=0.0) == before


def test_a_repair_without_a_person_does_not_move_the_wall_limit(folder):
    before = dataclasses.replace(
        GatewayConfig.load(folder), started_at="2020-01-01T00:00:00+00:00", downtime_seconds=7.0
    )
    assert resume._continued(folder, before, HELD, None, by_person=False) == before


@pytest.mark.parametrize("told", ["", "no boot id", f"{BOOT}\n{BOOT}"])
def test_the_gateway_is_told_the_guests_boot_of_now_or_that_it_is_not_known(folder, told):
    before = dataclasses.replace(GatewayConfig.load(folder), boot_id="an-earlier-boot")
    now = dataclasses.replace(HELD, boot_id=BOOT)
    assert resume._continued(folder, before, now, None).boot_id == BOOT
    assert resume._continued(folder, before, dataclasses.replace(HELD, boot_id=told), None).boot_id == ""


def test_a_new_token_takes_the_place_of_the_old_one(folder):
    after = resume._continued(folder, GatewayConfig.load(folder), HELD, "another")
    assert after.token_sha256 == token_hash("another")


def test_a_night_in_which_the_host_was_off_does_not_use_up_the_wall_limit(folder):
    config = dataclasses.replace(GatewayConfig.load(folder), minutes=60)
    late = config.started + 10 * 3600
    assert config.wall_over(late)
    assert not dataclasses.replace(config, downtime_seconds=9 * 3600.0).wall_over(late)


@pytest.mark.parametrize("gone", ["disks/system.qcow2", "disks/seed.iso", "set/data.qcow2"])
def test_a_guest_whose_disks_are_gone_is_not_booted(lab, gone):
    where = session.place(lab)
    for name in ("system.qcow2", "data.qcow2", "seed.iso", "vmlinuz", "initrd"):
        for place in (where.disks_dir, where.set_dir):
            place.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(b"")
    resume.demand_overlays(where)
    (where.dir / gone).unlink()
    with pytest.raises(LabError, match=gone) as caught:
        resume.demand_overlays(where)
    assert "lab collect" in caught.value.hint


def test_a_guest_that_is_no_longer_defined_is_said_and_nothing_is_started(lab, folder, monkeypatch):
    monkeypatch.setattr(guest.Hypervisor.__init__, "__defaults__", ("test:///default",))
    with pytest.raises(LabError, match="no longer defined") as caught:
        resume.resume(lab, "last", Progress())
    assert caught.value.code == UNREACHABLE and not (folder / "gateway.pid").exists()


def test_a_guest_that_was_removed_meanwhile_is_defined_again_to_boot_from_its_disks(
    lab, folder, with_manifest, monkeypatch
):
    monkeypatch.setattr(guest.Hypervisor.__init__, "__defaults__", ("test:///default",))
    ours = ownership.claim(lab.dir)
    definitions = {
        "domain": "<domain type='test'><name>unit</name><memory>65536</memory>"
        "<os><type>hvm</type></os></domain>",
        "network": "<network><name>unit</name><ip address='192.168.77.1' netmask='255.255.255.0'/></network>",
    }
    with_manifest(lab, definitions=definitions)
    with guest.Hypervisor() as hypervisor:
        try:
            resume._define_as_it_was(session.place(lab), hypervisor, "absent")
            assert hypervisor.domain("unit").UUIDString() == ours["domain"]
            assert hypervisor.network("unit").UUIDString() == ours["network"]
        finally:
            hypervisor.domain("unit").undefine()
            hypervisor.network("unit").destroy()
            hypervisor.network("unit").undefine()


@pytest.fixture
def asked(tmp_path):
    """Runs what the guest is asked, here, on a record of the test's own; returns the answer."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "systemctl").symlink_to(shutil.which("false"))

    def ask(**rows: str) -> resume.Held:
        database = sqlite3.connect(tmp_path / "run.db")
        database.execute("CREATE TABLE session_state (key TEXT PRIMARY KEY, value TEXT)")
        database.executemany("INSERT INTO session_state VALUES (?, ?)", rows.items())
        database.commit()
        database.close()
        settings = tmp_path / "run.json"
        settings.write_text(json.dumps({"run_id": RUN_ID, "token": TOKEN}))
        script = resume.LOOK.replace("/etc/lab-harness/run.json", str(settings))
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)],
            capture_output=True,
            text=True,
            env={"PATH": str(tools)},
            check=True,
        )
        return resume.held_from(done.stdout, "unit")

    return ask


def test_the_guest_is_asked_for_service_record_and_token_in_one_go(asked):
    held = asked(run_id=OTHER, status="running")
    boot = Path(BOOT_ID).read_text().strip()
    assert held == resume.Held(False, OTHER, sealed=False, token_sha256=token_hash(TOKEN), boot_id=boot)


def test_a_record_with_a_summary_is_sealed(asked):
    assert asked(run_id=RUN_ID, summary="{}").sealed is True


@pytest.mark.parametrize("said", ["", "Killed\n", '{"active": true}', "[]"])
def test_an_answer_that_is_none_is_not_guessed_at(said):
    with pytest.raises(LabError, match="does not say what it holds") as caught:
        resume.held_from(said, "unit")
    assert caught.value.code == UNREACHABLE and "`lab collect --stop`" in caught.value.hint


def test_the_harness_a_run_began_with_is_found_again(lab, folder):
    assert session.archive_of(folder) is None
    archive = lab.dir / "archive.tar.gz"
    state.write_json(folder / "options.json", {"archive": str(archive)})
    assert session.archive_of(folder) is None
    archive.touch()
    assert session.archive_of(folder) == archive


def known(**changes):
    base = {"guest": "running", "snapshot": "verified", "run": RUN_ID, "sealed": False, "collected": False}
    base |= {"dirty": True, "gateway_alive": True, "quiet_seconds": 5.0, "at_work": None}
    base |= {"io_error": False}
    return base | changes


def advised(**changes) -> str:
    return next(words for fits, words in advice.NEXT if fits(known(**changes))).format(**known(**changes))


@pytest.mark.parametrize(
    "changes", [{"guest": "off"}, {"guest": "crashed"}, {"gateway_alive": False}, {"quiet_seconds": 3600.0}]
)
def test_status_of_a_run_that_broke_off_says_how_to_go_on_and_how_to_end_it(changes):
    said = advised(**changes)
    assert f"`lab run --resume {RUN_ID}`" in said and "`lab collect" in said


def test_status_of_a_run_whose_start_was_killed_says_how_to_go_on():
    assert f"`lab run --resume {RUN_ID}`" in advised(quiet_seconds=None)


def test_status_of_a_damaged_snapshot_names_the_command_that_helps():
    assert advised(snapshot="damaged", run=None).startswith("`lab down`, then `lab up`")
    assert "`lab collect" in advised(snapshot="damaged", sealed=True)  # first the run


def test_while_another_command_is_at_work_nobody_is_told_to_interfere():
    at_work = {"verb": "demo", "pid": 1, "since": "", "said": ""}
    assert "`lab watch`" in advised(at_work=at_work)
    alone = advised(at_work=at_work, run=None, snapshot="not verified")
    assert alone.startswith("wait until it is over") and "`kill 1`" in alone


def test_status_of_a_run_at_work_speaks_of_watching_only():
    assert "--resume" not in advised() and "`lab watch`" in advised()


def test_other_options_beside_resume_are_refused():
    from labkit.verbs import session as verbs

    with pytest.raises(LabError, match="nothing of it can be changed") as caught:
        verbs._refuse_with_resume(None, 3.0, None, False)
    assert caught.value.code == USAGE != NOT_READY
    verbs._refuse_with_resume(None, None, False)
