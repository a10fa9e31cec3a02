"""HOST: what is said and asked before a run starts: what it may cost and write, and one small paid call."""

from __future__ import annotations

from typing import Any

from labkit import estimate, plan
from labkit.config import Lab
from labkit.gateway import keys, preflight
from labkit.plan import Plan
from labkit.progress import Progress


def look_ahead(lab: Lab, wanted: Plan, progress: Progress, check: bool = True) -> dict[str, Any]:
    """Say the estimate, then ask the models once where that costs money.

    check: refuse what would not work; without it only the estimate is said. Returns {"estimate": {...},
    "preflight": [answer, ...]}, for the run's record. Raises LabError (not ready): the disk is too full, or
    the provider does not serve this run.
    """
    paid = wanted.provider != plan.REHEARSAL
    prices = (lab.run["run_price_input_per_mtok"], lab.run["run_price_output_per_mtok"])
    expected = estimate.of(wanted.minutes, *prices, lab.dir)
    for line in estimate.lines(expected, wanted.minutes, wanted.budget_usd, paid):
        progress.say(line)
    answers = []
    if check:
        estimate.demand_disk(expected, lab.dir)
    if check and paid:
        answers = _asked(lab, wanted, progress)
    return {"estimate": expected.as_dict(), "preflight": [answer.as_dict() for answer in answers]}


def _asked(lab: Lab, wanted: Plan, progress: Progress) -> list[preflight.Answer]:
    config = plan.gateway_config(lab, wanted, "")
    key = keys.provider_key(config)
    with progress.step(f"asking {config.provider} for one small paid answer"):
        answers = preflight.ask_all(config, key)
    for answer in answers:
        progress.say(answer.line())
    return answers
