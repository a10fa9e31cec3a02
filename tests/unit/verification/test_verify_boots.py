"""TESTS: which boots of the guest a record may tell of, and what `lab verify` says of the others."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path

import pytest
from gateway_in_process import TOKEN
from loopback import gateway_config
from simulated_guest import Guest

from labkit.gateway.chain import Chain
from labkit.verification import boot_check
from labkit.verification.evidence import Database, Evidence, read_ledger
from labkit.verification.verify import UNKNOWN_BOOT, examine, text


def opened(boot: str | None) -> tuple[str, dict]:
    return "opened", {"run_id": "r", "nonce": "n", "boot_id": boot}


def announced(boot: str | None) -> tuple[str, dict]:
    return "started", {"run_id": "r", "nonce": "n", "boot_id": boot}


def row(number: int, boot: str) -> dict:
    if number == 1:
        return {"id": 1, "event_type": "RUN_STARTED", "sanitized_output": json.dumps({"boot_id": boot})}
    return {
        "id": number,
        "event_type": "RESUMED",
        "sanitized_output": f"goes on after step {number}; boot {boot}",
    }


def told(number: int, boot: str) -> tuple[str, dict]:
    return "event", row(number, boot)


def found(folder: Path, *records: tuple[str, dict], behind: list[dict] = []) -> list[tuple[str, str]]:  # noqa: B006
    """(kind, record) of each finding, of a chain that holds these records; behind: only run.db has them."""
    Chain(folder).append(list(records))
    run = Database({"execution_logs": behind})
    evidence = Evidence(folder, {}, {}, read_ledger(folder / "ledger.jsonl"), run, Database())
    return [(finding.kind, finding.record) for finding in boot_check.check(evidence)]


def test_boots_that_the_host_announced_in_their_order_are_no_finding(tmp_path):
    records = [opened("b1"), told(1, "b1"), told(2, "b1"), announced("b2"), told(3, "b2")]
    assert found(tmp_path, *records, announced("b2"), behind=[row(4, "b2")]) == []


def test_what_the_guest_recorded_before_it_went_down_may_come_after_the_next_boot(tmp_path):
    assert found(tmp_path, opened("b1"), announced("b2"), told(1, "b1"), told(2, "b2")) == []


def test_a_row_of_a_boot_that_was_never_announced_is_replayed(tmp_path):
    records = [opened("b1"), told(1, "b1"), told(2, "other")]
    assert found(tmp_path, *records) == [("replayed", "event 2")]


def test_a_row_in_the_ledger_before_the_boot_that_it_tells_of_is_replayed(tmp_path):
    records = [opened("b1"), told(1, "b1"), told(2, "b2"), announced("b2")]
    assert found(tmp_path, *records) == [("replayed", "event 2")]


def test_a_machine_that_was_set_back_to_an_earlier_boot_is_replayed(tmp_path):
    records = [opened("b1"), told(1, "b1"), announced("b2"), told(2, "b2"), told(3, "b1")]
    assert found(tmp_path, *records) == [("replayed", "event 3")]


def test_rows_that_never_reached_the_host_are_held_against_its_boots_as_well(tmp_path):
    assert found(tmp_path, opened("b1"), told(1, "b1"), behind=[row(2, "other")]) == [("replayed", "event 2")]


@pytest.mark.parametrize("boots", [(None, None), (None, "b1"), ("b1", None)])
def test_a_host_that_did_not_know_a_boot_accuses_nobody(tmp_path, boots):
    records = [opened(boots[0]), told(1, "any"), announced(boots[1]), told(2, "other")]
    assert found(tmp_path, *records) == []


@pytest.fixture
def guest(tmp_path):
    """At work in the boot that the host saw."""
    config = gateway_config(
        TOKEN, provider="paid", base_url="http://provider.invalid/v1", models=("test/model",), boot_id="b1",
        nonce="5f3a" * 8, budget_usd=100.0, max_completion_tokens=4096,
    )  # fmt: skip
    guest = Guest(tmp_path, config, random.Random(1))
    guest.chance.random = lambda: 0.8  # it neither dies nor loses a reply
    guest.begin()
    guest.step()
    guest.push()
    return guest


def goes_on_in(guest: Guest, boot: str) -> int:
    """The harness starts in that boot and pushes; returns how the gateway answers."""
    guest.recorder.event("RESUMED", sanitized_output=f"goes on after step 1; boot {boot}")
    rows = guest._rows("SELECT * FROM execution_logs WHERE id > ?", guest.watermark)
    return guest.gateway.post("/v1/events", {"run_id": guest.config.run_id, "events": rows}).status_code


def announce(guest: Guest, boot: str) -> None:
    """The gateway is started anew, told of the guest's boot by `lab run --resume` or the watchdog."""
    guest.gateway.ledger.close()
    guest.gateway.config = dataclasses.replace(guest.config, boot_id=boot)
    guest.gateway.restart()


def test_telemetry_of_an_unseen_boot_is_refused_and_found(guest):
    first = guest._rows("SELECT * FROM execution_logs WHERE id = 1")[0]
    old = {**first, **row(2, "b0"), "id": guest.watermark + 1}
    push = {"run_id": guest.config.run_id, "events": [old]}
    assert guest.gateway.post("/v1/events", push).status_code == 409
    guest.seal()
    report = examine(guest.collect())
    assert report.first.kind == "replayed" and "another boot" in report.first.what, text(report)


def test_a_boot_that_the_host_announced_late_accuses_nobody(guest):
    """A person rebooted the guest and started its service by hand; `lab run --resume` came after."""
    assert goes_on_in(guest, "b2") == 409
    announce(guest, "b2")
    guest.push()
    guest.step()
    guest.seal()
    report = examine(guest.collect())
    assert report.holds and UNKNOWN_BOOT not in report.notes, text(report)


def test_a_run_of_a_host_that_knew_no_boot_holds_and_is_said_to(guest):
    announce(guest, "")
    assert goes_on_in(guest, "b2") == 200
    guest.push()
    guest.seal()
    report = examine(guest.collect())
    assert report.holds and UNKNOWN_BOOT in report.notes, text(report)
