"""TESTS: what is said before a run starts: cost, disk, sleep."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from labkit import estimate, lookahead, plan
from labkit.errors import LabError
from labkit.gateway import awake
from labkit.progress import Progress


class Heard(Progress):
    """Keeps what a person would read."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def test_the_reference_runs_length_and_prices_give_its_own_bill(tmp_path):
    expected = estimate.of(120, 0.10, 0.20, tmp_path)
    assert expected.dollars == pytest.approx(1.15)
    assert (expected.mtok_in, expected.mtok_out) == (11.3, 0.43)


def test_four_times_the_minutes_and_ten_times_the_prices_cost_forty_times_as_much(tmp_path):
    assert estimate.of(480, 1.0, 2.0, tmp_path).dollars == pytest.approx(46.0)


def test_a_cap_below_the_estimate_is_said_with_the_time_it_is_reached(tmp_path):
    said = estimate.lines(estimate.of(120, 0.10, 0.20, tmp_path), 120, 0.575, paid=True)
    assert any("after about 60 min" in line for line in said)
    assert not any(
        "after about" in line for line in estimate.lines(estimate.of(120, 0.1, 0.2, tmp_path), 120, 2, True)
    )


def test_a_disk_too_full_for_the_run_is_named_with_what_is_free():
    short = estimate.Estimate(1, 1, 1, disk_gb=6.0, free_gb=2.5)
    with pytest.raises(LabError, match=r"2\.5 GiB are free at /var/lib.*may write 6\.0") as caught:
        estimate.demand_disk(short, "/var/lib")
    assert "--minutes" in caught.value.hint


def test_a_rehearsal_is_told_about_the_disk_and_nothing_about_money(lab):
    heard = Heard()
    asked = lookahead.look_ahead(lab, plan.make(lab, minutes=5, model="rehearsal"), heard)
    assert asked["preflight"] == [] and asked["estimate"]["disk_gb"] > 2
    assert len(heard.lines) == 1 and "disk" in heard.lines[0]


def test_without_preflight_a_paid_run_needs_no_provider_to_be_looked_ahead(lab, monkeypatch):
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    heard = Heard()
    asked = lookahead.look_ahead(lab, plan.make(lab, minutes=120), heard, check=False)
    assert asked["preflight"] == [] and "$1.15" in heard.lines[0]


def test_a_paid_run_without_a_key_is_refused_before_anything_starts(lab, monkeypatch, tmp_path):
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    monkeypatch.setattr(plan, "caller_home", lambda: tmp_path)
    with pytest.raises(LabError, match="no key for provider openrouter"):
        lookahead.look_ahead(lab, plan.make(lab), Heard())


def test_the_inhibitor_lives_as_long_as_the_gateway():
    gateway = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    words = awake.command(gateway.pid, "a-run")
    keeper = subprocess.Popen(words[words.index("tail") :])
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            keeper.wait(0.3)
        gateway.communicate(b"\n")
        assert keeper.wait(60) == 0
    finally:
        keeper.kill()
        gateway.kill()
    assert words[:2] == ["systemd-inhibit", "--what=sleep:idle"]


@pytest.mark.skipif(awake.SYSTEMD.is_dir() and shutil.which("systemd-inhibit"), reason="systemd runs here")
def test_where_nothing_keeps_the_machine_awake_a_person_is_told():
    assert "see that it does not sleep" in awake.keep(1, "a-run")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"run_on_complete_webhook": "example.org/hook"}, "run_on_complete_webhook"),
        ({"run_on_complete_command": ["notify", 3]}, "run_on_complete_command"),
        ({"run_on_complete_command": "notify"}, "must be of type list"),
    ],
)
def test_a_hook_that_cannot_work_is_named_when_the_inventory_is_read(make_lab, values, said):
    with pytest.raises(LabError, match=said):
        make_lab(run=values)
