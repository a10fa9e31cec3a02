"""TESTS: a guest that went away is noticed, and status tells the truth when much is broken."""

from __future__ import annotations

import json

import pytest
from driver_guest import UUID, XML
from loopback import until

from labkit import advice, guest, network_gate, presence, session, state, status, switching
from labkit.errors import UNREACHABLE, LabError
from labkit.gateway import commands, pidfile
from labkit.watch import watch

RUN_ID = "20261129-201202-b0dd88"


@pytest.fixture
def no_libvirt(monkeypatch):
    monkeypatch.setattr(guest.Hypervisor.__init__, "__defaults__", ("test:///nowhere/at/all.xml",))


@pytest.fixture
def with_run(lab):
    """A run in the guest, and the host's folder of it."""
    folder = lab.gateway_dir / RUN_ID
    folder.mkdir(parents=True)
    state.write_json(folder / "run.json", {"run_id": RUN_ID, "minutes": 480, "budget_usd": 25.0})
    state.update(lab.dir, run=RUN_ID, collected=False, dirty=True)
    return folder


def refusal(lab) -> LabError:
    with pytest.raises(LabError) as caught:
        presence.demand_running(lab, "no shell opens in it")
    assert caught.value.code == UNREACHABLE
    return caught.value


def test_a_running_guest_is_let_through(lab, running):
    presence.demand_running(lab, "no shell opens in it")
    assert running.state("unit") == "running"


def test_a_guest_that_is_missing_off_or_paused_is_said_with_what_to_type(lab, hypervisor):
    assert "lab up" in refusal(lab).hint
    hypervisor.ensure_domain("unit", XML, UUID)
    off = refusal(lab)
    assert off.message == "the guest 'unit' is off: no shell opens in it" and "start unit" in off.hint
    hypervisor.start("unit")
    hypervisor.domain("unit").suspend()
    assert "resume unit" in refusal(lab).hint


def test_one_look_without_the_guest_is_no_proof_and_two_are(running):
    watcher = presence.Watcher("unit", look_seconds=0)
    assert watcher.word() == ""
    running.stop("unit")
    assert watcher.word() == ""
    until(lambda: watcher.word() == "off")


def test_a_libvirt_that_does_not_answer_proves_nothing_about_the_guest(no_libvirt):
    watcher = presence.Watcher("unit", look_seconds=0)
    assert [watcher.word() for _ in range(3)] == ["", "", ""]


def gateway_json(folder) -> None:
    from labkit.gateway.config import GatewayConfig

    GatewayConfig(
        run_id=RUN_ID,
        bind="127.0.0.1",
        port=1,
        provider="rehearsal",
        base_url="",
        key_env="",
        models=("rehearsal",),
        token_sha256="0" * 64,
        budget_usd=1.0,
        price_input_per_mtok=0.1,
        price_output_per_mtok=0.2,
        max_completion_tokens=1000,
        minutes=3,
    ).save(folder)


def test_watching_ends_when_the_guest_is_gone(with_run):
    gateway_json(with_run)
    outcome = watch(
        with_run, on_interrupt=lambda: commands.append(with_run, "finish"), guest_gone=lambda: "off"
    )
    assert (outcome.how, outcome.word) == ("guest", "off")


def test_status_with_nothing_made_says_what_makes_it(lab, hypervisor):
    known = status.describe(lab)
    assert (known["guest"], known["snapshot"], known["run"]) == ("absent", "none", None)
    said = advice.sentence(known)
    assert said.endswith("`lab up` builds the guest") and "network" not in said


def test_the_network_of_a_guest_that_is_not_there_is_neither_shown_nor_switched(lab, hypervisor):
    for mode in (None, "open", "sealed"):
        with pytest.raises(LabError, match="there is no guest named 'unit'"):
            switching.network(lab, mode, "")


def test_status_tells_that_libvirt_does_not_answer_instead_of_failing(lab, with_run, no_libvirt):
    known = json.loads(json.dumps(status.describe(lab)))
    assert known["guest"] == "unknown" and known["run"] == RUN_ID
    assert "libvirt does not answer" in known["problems"][0]
    assert advice.sentence(known).splitlines()[-1].startswith("`lab doctor` starts libvirt")


def test_a_phase_with_a_newline_in_it_adds_no_line_to_status(lab, with_run, no_libvirt):
    known = status.describe(lab)
    forged = "run x: collected"
    said = advice.sentence({**known, "phase": f"EXPLORATION\n{forged}", "watchdog": f"a\n{forged}"})
    assert said.count("\\n" + forged) == 2 and forged not in said.splitlines()


def test_status_survives_damaged_files_and_names_each(lab, with_run, running, with_manifest):
    with_manifest(lab)
    (lab.set_dir / "manifest.json").write_text("{half")
    (with_run / "run.json").write_text("[]")
    known = status.describe(lab)
    assert known["snapshot"] == "damaged" and known["minutes"] is None
    said = advice.sentence(known)
    assert "manifest.json is damaged" in said and "run.json" in said


def test_status_survives_a_damaged_state_file(lab, hypervisor):
    lab.dir.mkdir(parents=True)
    (lab.dir / "state.json").write_text("{half")
    assert "state.json is damaged" in advice.sentence(status.describe(lab))


def test_status_survives_a_missing_gateway_folder_and_a_stale_pid(lab, with_run, running, with_manifest):
    with_manifest(lab)
    (with_run / "gateway.pid").write_text("1\nanother boot:17\n")
    assert status.describe(lab)["gateway_alive"] is False
    (with_run / "gateway.pid").unlink()
    (with_run / "run.json").unlink()
    with_run.rmdir()
    known = status.describe(lab)
    assert known["step"] == 0 and "run.json" in known["problems"][0]


def test_status_of_a_guest_that_stopped_in_mid_run_does_not_send_anyone_to_watch(
    lab, with_run, hypervisor, with_manifest
):
    with_manifest(lab)
    hypervisor.ensure_domain("unit", XML, UUID)
    said = advice.sentence(status.describe(lab))
    assert "stopped in the middle of a run" in said and "lab watch" not in said


def test_a_snapshot_of_another_inventory_is_stale(lab, hypervisor, with_manifest):
    with_manifest(lab)
    hypervisor.ensure_domain("unit", XML, UUID)
    assert status.describe(lab)["snapshot"] == "stale"


def test_status_says_that_a_session_is_paused_and_what_lets_it_go_on(lab, with_run, running):
    asked = json.dumps({"name": "pause"})
    row = {"id": 1, "event_type": "COMMAND", "command_or_input": asked}
    (with_run / "events.jsonl").write_text(json.dumps(row) + "\n")
    known = status.describe(lab)
    assert known["paused"] and "paused on request: `lab unpause` lets it go on" in advice.sentence(known)


def test_a_network_that_is_switched_while_the_gateway_is_gone_is_told_to_the_session_later(
    lab, with_run, running, monkeypatch
):
    monkeypatch.setattr(
        network_gate, "switch", lambda _lab, _mode: True
    )  # libvirt's test driver has no filters
    answer = switching.network(lab, "sealed", "it looked odd")
    assert answer["told"] == RUN_ID and f"the Worker of run {RUN_ID} is told" in answer["text"]
    assert switching.TOLD["sealed"] in answer["text"], "the message that was queued is shown"
    (kept,) = commands.listed(with_run)
    assert (kept["name"], kept["why"], kept["state"]) == ("say", "it looked odd", "queued")
    assert "has been sealed" in kept["args"]["text"]
    (line,) = (json.loads(line) for line in (with_run / "network.jsonl").read_text().splitlines())
    assert (line["mode"], line["why"], line["who"]["by"]) == ("sealed", "it looked odd", "cli")


def test_where_no_session_hears_of_it_the_answer_says_how_long_a_seal_lasts(lab, running, monkeypatch):
    monkeypatch.setattr(network_gate, "switch", lambda _lab, _mode: True)
    said = switching.network(lab, "sealed", "")
    assert said["told"] is None and "the next revert opens it" in said["text"]


def test_a_run_whose_guest_is_off_is_not_said_to_be_running(lab, with_run, running):
    pidfile.write(with_run)  # this process passes for the gateway
    with pytest.raises(LabError, match="its session is still running"):
        session.refuse_uncollected(lab, discard=False)
    running.stop("unit")
    with pytest.raises(LabError, match="the guest is off") as caught:
        session.refuse_uncollected(lab, discard=False)
    assert "`lab run --resume last`" in caught.value.hint


def test_a_guest_that_boots_and_takes_no_connection_yet_is_said_in_a_sentence(
    lab, running, free_port, monkeypatch
):
    monkeypatch.setattr(presence, "SSH_PORT", free_port)
    monkeypatch.setattr(type(lab), "address", "127.0.0.1")
    with pytest.raises(LabError, match="does not answer at 127.0.0.1: Connection refused") as caught:
        presence.demand_sshd(lab)
    assert caught.value.code == UNREACHABLE and "may still boot" in caught.value.hint
