"""ENGINE: simulated sessions against providers that do everything wrong: each ends in time, with a report."""

import json
import shutil

import pytest
from unpleasant import adversary, spender
from whole import DOCUMENTED

from labkit.simulation.session import simulate

PARTS = 8
SESSIONS = 200
MONEY_RUNS = 1000
GRACE = 60.0  # seconds after the limit
MOST_STEPS, MOST_MONEY_STEPS = 60, 30
AT_THE_CAP, LEAST_AT_THE_CAP = 0.8, 0.2  # of its cap a run has billed; of the runs have done so


def played(seed, folder):
    script, minutes = adversary(seed)
    try:
        result = simulate(script, seed=seed, minutes=minutes, folder=folder)
        return list(_wrong(result, minutes * 60, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wrong(result, length, folder):
    summary = result.summary
    report = folder / "workspace" / summary["final_report"]
    if summary["status"] != "sealed" or not summary["final_report_written"] or not report.is_file():
        yield f"no report: {summary['final_report']!r}"
    if summary["stop_reason"] not in DOCUMENTED - {"interrupted"}:
        yield f"stopped for {summary['stop_reason']!r}"
    if summary["steps"] > MOST_STEPS:
        yield f"{summary['steps']} steps"
    if summary["elapsed_seconds"] > length + GRACE:
        yield f"{summary['elapsed_seconds']} active seconds of {length}"
    if result.simulated_seconds > 2 * length + GRACE:
        yield f"{result.simulated_seconds} seconds by the wall clock, the run had {length}"
    last = result.query("SELECT event_type, sanitized_output FROM execution_logs ORDER BY id DESC LIMIT 1")[0]
    if last[0] != "RUN_SEALED" or json.loads(last[1])["events"] != summary["events"]:
        yield f"the last event is {last[0]}"
    sql = "SELECT guard_reason FROM execution_logs WHERE guard_reason LIKE '%Traceback%'"
    yield from (f"a step failed: {row[0][-500:]}" for row in result.query(sql))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_session_against_an_adversary_is_sealed_in_time_with_a_report(tmp_path, part):
    found = {seed: played(seed, tmp_path / str(seed)) for seed in range(part, SESSIONS, PARTS)}
    assert {seed: what for seed, what in found.items() if what} == {}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_run_spends_more_than_its_cap_and_many_come_close_to_it(monkeypatch, part):
    over, close, seeds = {}, 0, range(part, MONEY_RUNS, PARTS)
    for seed in seeds:
        run = spender(seed)
        monkeypatch.setattr("labkit.simulation.session.Meter", run.meter)
        result = simulate(run.script, seed=seed, minutes=run.minutes, settings=run.settings)
        cap = run.settings["budget_usd"]
        if result.billed_usd > cap:
            over[seed] = (result.billed_usd, cap, run.script.usage, result.faults)
        close += result.billed_usd > AT_THE_CAP * cap
        assert result.summary["final_report_written"]
        assert result.summary["steps"] <= MOST_MONEY_STEPS, seed
    assert over == {}
    assert close >= LEAST_AT_THE_CAP * len(seeds), "the cap was hardly reached"
