"""TESTS: what `lab run` may ask for, and that a start that failed leaves no run behind."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from labkit import fingerprint, plan, provision, session, state
from labkit.errors import NOT_READY, USAGE, LabError
from labkit.gateway import process

RUN_ID = "20261129-201202-b0dd88"


@pytest.mark.parametrize("minutes", [0, -5, 0.5, 48 * 60 + 1, math.inf, math.nan])
def test_nonsense_minutes_are_refused_before_anything_changes(lab, minutes):
    with pytest.raises(LabError, match="--minutes") as caught:
        plan.make(lab, minutes=minutes)
    assert caught.value.code == USAGE and not lab.dir.exists()


@pytest.mark.parametrize("dollars", [0, -1, 10_001, math.nan])
def test_nonsense_budgets_are_refused(lab, dollars):
    with pytest.raises(LabError, match="--budget"):
        plan.make(lab, budget=dollars)


def test_an_unknown_provider_is_named_with_those_there_are(make_lab):
    with pytest.raises(LabError, match="'closedrouter'") as caught:
        plan.make(make_lab(run={"run_provider": "closedrouter"}))
    assert "openrouter" in caught.value.hint and caught.value.code == USAGE


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"run_window_min_steps": 20}, "window_min_steps"),
        ({"run_price_input_per_mtok": -1.0}, "price_input"),
        ({"run_providers": {"openrouter": {"base_url": "openrouter.ai", "key_env": ""}}}, "base_url"),
    ],
)
def test_values_of_run_yml_that_cannot_work_are_named_before_the_guest_is_touched(make_lab, values, said):
    lab = make_lab(run=values)
    with pytest.raises(LabError, match=said) as caught:
        plan.make(lab)
    assert caught.value.code == USAGE and not lab.dir.exists()


def test_the_rehearsal_is_chosen_by_its_model_and_plays_both(lab):
    wanted = plan.make(lab, model="rehearsal")
    assert (wanted.provider, wanted.model, wanted.inspector_model) == ("rehearsal",) * 3


def test_the_rehearsal_does_not_inspect_a_paid_worker(lab):
    with pytest.raises(LabError, match="plays both"):
        plan.make(lab, inspector_model="rehearsal")


def test_the_inspector_takes_the_workers_model_unless_told(lab):
    assert plan.make(lab).inspector_model == lab.run["run_model"]
    assert plan.make(lab, inspector_model="other/model").inspector_model == "other/model"


def test_a_model_that_trains_on_what_it_is_sent_is_named_before_the_run(lab):
    said = plan.data_use(lab, plan.make(lab))
    assert len(said) == 1 and "contributor" in said[0] and "train" in said[0]
    assert plan.data_use(lab, plan.make(lab, model="rehearsal")) == []


def test_a_task_file_is_read_where_the_person_is(lab, tmp_path, monkeypatch):
    (tmp_path / "task.md").write_text("  count the primes \n")
    monkeypatch.chdir(tmp_path)
    assert plan.make(lab, task_file=Path("task.md")).task == "count the primes"


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b" \n"])
def test_a_task_file_that_cannot_be_read_or_is_empty_is_named(lab, tmp_path, content):
    path = tmp_path / "task.md"
    if content:
        path.write_bytes(content)
    with pytest.raises(LabError, match=r"task\.md") as caught:
        plan.make(lab, task_file=path)
    assert caught.value.code == USAGE


def test_a_prompt_file_reaches_the_guest_as_it_is(lab, tmp_path):
    path = tmp_path / "worker.md"
    path.write_bytes(b"  You are alone on {{machine}}.\r\n{{task}}\n")
    wanted = plan.make(lab, prompt_file=path)
    assert plan.harness_settings(lab, wanted)["prompt"] == "  You are alone on {{machine}}.\r\n{{task}}\n"


def test_without_a_prompt_file_the_guest_takes_the_shipped_prompt(lab):
    assert plan.harness_settings(lab, plan.make(lab))["prompt"] is None


def test_without_a_task_a_prompt_needs_no_place_for_one(lab, tmp_path):
    path = tmp_path / "worker.md"
    path.write_text("Do as you like.")
    assert plan.make(lab, prompt_file=path).prompt == "Do as you like."


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("you are on {{machin}}", r"\{\{machin\}\}, which nobody fills\n.*\{\{machine\}\}"),
        ("you are on {{ machine }}", r"the blank \{\{ machine \}\}.*\n.*write \{\{machine\}\}"),
        ("do {{task }}", r"write \{\{task\}\}"),
        (" \n", "is empty"),
        ("do as you like", r"no \{\{task\}\}"),
    ],
)
def test_a_prompt_that_cannot_do_is_refused_with_the_reason(make_lab, tmp_path, content, said):
    path = tmp_path / "worker.md"
    path.write_text(content)
    with pytest.raises(LabError) as caught:
        plan.make(make_lab(run={"run_task": "count the primes"}), prompt_file=path)
    assert re.search(said, str(caught.value)) and caught.value.code == USAGE


def test_an_uncollected_run_stands_in_the_way_until_it_may_be_thrown_away(lab):
    state.update(lab.dir, run=RUN_ID, collected=False)
    with pytest.raises(LabError, match=RUN_ID) as caught:
        session.refuse_uncollected(lab, discard=False)
    assert "lab collect" in caught.value.hint and "--discard" in caught.value.hint
    session.refuse_uncollected(lab, discard=True)
    state.update(lab.dir, collected=True)
    session.refuse_uncollected(lab, discard=False)


def test_a_run_is_refused_without_a_snapshot_and_on_one_not_verified(lab, with_manifest):
    with pytest.raises(LabError, match="has no snapshot"):
        provision.refuse_stale(lab)
    with_manifest(lab, verified=False)
    with pytest.raises(LabError, match="not verified"):
        provision.refuse_stale(lab)


def test_a_run_is_refused_on_a_snapshot_older_than_the_inventory(lab, with_manifest):
    with_manifest(lab)
    with pytest.raises(LabError, match="older than the inventory") as caught:
        provision.refuse_stale(lab)
    assert "lab up" in caught.value.hint
    with_manifest(lab, fingerprint=fingerprint.of(lab))
    provision.refuse_stale(lab)


def test_a_set_counts_no_more_once_a_later_build_has_begun(lab, with_manifest):
    with_manifest(lab, fingerprint=fingerprint.of(lab))
    state.update(lab.dir, fingerprint=None)
    with pytest.raises(LabError, match="did not finish"):
        provision.refuse_stale(lab)


def test_the_settings_of_a_run_hold_no_token(lab):
    settings = plan.harness_settings(lab, plan.make(lab, minutes=5, model="rehearsal"))
    assert "token" not in settings and settings["minutes"] == 5
    assert settings["gateway_url"] == "http://192.168.150.1:8421" and settings["task"] is None


def started(lab):
    """The state and folder of a run whose gateway was about to start."""
    folder = lab.gateway_dir / RUN_ID
    folder.mkdir(parents=True)
    state.update(lab.dir, run=RUN_ID, collected=False, dirty=True)
    return folder


def fail_in_start(lab, folder, error):
    with pytest.raises(type(error)), session._forgotten_unless_begun(lab, folder, keep=True):
        raise error


@pytest.mark.parametrize("error", [LabError("port 8421 is taken"), KeyboardInterrupt()])
def test_a_start_that_failed_before_any_event_is_forgotten_and_leaves_a_note(lab, error):
    folder = started(lab)
    fail_in_start(lab, folder, error)
    session.refuse_uncollected(lab, discard=False)
    note = json.loads((folder / "not-started.json").read_text())
    assert note["reason"].startswith(("port 8421 is taken", "KeyboardInterrupt"))


def test_a_run_that_has_events_is_kept_whatever_failed_afterwards(lab):
    folder = started(lab)
    (folder / "events.jsonl").write_text('{"id": 1, "event_type": "RUN_STARTED"}\n')
    fail_in_start(lab, folder, LabError("the guest does not answer"))
    with pytest.raises(LabError, match="was not collected"):
        session.refuse_uncollected(lab, discard=False)


def test_the_gateway_of_a_start_that_failed_is_stopped(make_lab, free_port):
    guest = {
        "lab_network_cidr": "127.0.0.0/8",
        "lab_host_address": "127.0.0.1",
        "lab_guest_address": "127.0.0.9",
    }
    lab = make_lab(guest=guest, run={"run_gateway_port": free_port})
    folder = started(lab)
    wanted = plan.make(lab, model="rehearsal")
    process.start(folder, plan.gateway_config(lab, wanted, "token"))
    assert process.alive(folder)
    fail_in_start(lab, folder, LabError("the playbook failed"))
    assert not process.alive(folder)


def test_without_a_run_the_sentence_says_how_to_get_one(lab):
    with pytest.raises(LabError, match="no run is in the guest 'unit'") as caught:
        session.current(lab)
    assert caught.value.code == NOT_READY and "lab run" in caught.value.hint


def test_a_missing_gateway_folder_is_said_before_anything_is_shown(lab):
    state.update(lab.dir, run=RUN_ID)
    with pytest.raises(LabError, match="is missing or empty") as caught:
        session.watchable(lab)
    assert "lab collect" in caught.value.hint
