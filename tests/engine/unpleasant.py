"""TESTS: provider scripts drawn by seed: all that a provider, a Worker and a day can do to a session."""

from __future__ import annotations

import random

from labkit.simulation import script
from labkit.simulation.script import Script

HONEST_ENOUGH = ("honest", "no_cost", "none")  # what such a provider states can be reckoned with
PURPOSES = [["worker"], ["inspector"], ["digest"], ["report"], list(script.PURPOSES)]


def adversary(seed: int) -> tuple[Script, float]:
    """A provider that does several bad things at once, and the minutes of a session of 60 steps at most."""
    draw = random.Random(f"adversary {seed}")
    minutes = draw.uniform(2.0, 9.0)
    faults = [_fault(draw, minutes) for _ in range(draw.randint(1, 6))]
    if draw.random() < 0.1:
        faults.append({"kind": "outage", "from_minute": draw.uniform(0, minutes), "minutes": 60})
    data = {
        "worker": draw.choice(script.BEHAVIOURS),
        "usage": draw.choice(script.USAGES),
        "block_probability": draw.choice([0.0, 0.3, 1.0]),
        "latency": {
            "median_seconds": draw.uniform(4, 20),
            "spread": draw.uniform(0, 1.5),
            "longest_seconds": 400,
        },
        "faults": faults,
        "incidents": _incidents(draw, minutes),
    }
    return Script.from_dict(data, f"adversary {seed}"), minutes


def _fault(draw: random.Random, minutes: float) -> dict:
    kind = draw.choice(script.TRANSPORT + script.REPLY)
    for_good = draw.random() < 0.15
    fault = {
        "kind": kind,
        "purposes": draw.choice(PURPOSES),
        "probability": 1.0 if for_good else draw.uniform(0, 0.5),
    }
    if kind in script.TRANSPORT:
        fault["billed"] = draw.random() < 0.3
    if draw.random() < 0.5:
        fault |= {"from_minute": draw.uniform(0, minutes), "minutes": draw.uniform(0.5, minutes)}
    return fault | {"seconds": draw.uniform(1, 600), "retry_after_seconds": draw.choice([0, 5, 90, 7200])}


def _incidents(draw: random.Random, minutes: float) -> list[dict]:
    """At most one of a kind. Nothing that ends the run before its time: that is another promise."""
    kinds = draw.sample(["disk_full", "disk_free", "clock_jump", "gateway_away"], draw.randint(0, 2))
    return [
        {
            "at_minute": draw.uniform(0, minutes),
            "what": kind,
            "hours": draw.choice([-24, 24]),
            "minutes": minutes,
        }
        for kind in kinds
    ]


def spender(seed: int) -> tuple[Script, float, dict]:
    """Random prices, a purse for a few calls or for all, billed failures, usage that is not told."""
    draw = random.Random(f"spender {seed}")
    prices = {"price_input_per_mtok": draw.uniform(0.01, 15), "price_output_per_mtok": draw.uniform(0.01, 75)}
    most = draw.choice([256, 2048, 8192])
    call = (15_000 * prices["price_input_per_mtok"] + most * prices["price_output_per_mtok"]) / 1e6
    settings = prices | {"max_completion_tokens": most, "budget_usd": call * draw.uniform(0.5, 12)}
    kinds = draw.sample(script.TRANSPORT, draw.randint(0, 3))
    faults = [
        {"kind": kind, "probability": draw.uniform(0, 0.4), "billed": draw.random() < 0.5, "seconds": 30}
        for kind in kinds
    ]
    data = {"usage": draw.choice(HONEST_ENOUGH), "faults": faults, "worker": draw.choice(script.BEHAVIOURS)}
    return Script.from_dict(data, f"spender {seed}"), draw.uniform(1.5, 5.0), settings
