"""TESTS: provider scripts drawn by seed: all that a provider, a Worker and a day can do to a session."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from harness.money import CAUTION, FIRST_CHARS_PER_TOKEN
from labkit.simulation import script
from labkit.simulation.agents import Said
from labkit.simulation.script import Script
from labkit.simulation.wire import Bill, Meter

HONEST_ENOUGH = ("honest", "no_cost", "none")  # what such a provider states can be reckoned with
# What the harness sees fail and may have been billed all the same, at a cost that nobody tells.
CHARGED_UNSEEN = ("silent", "drip", "cut_stream", "reset", "empty", "no_choices", "blank", "html")
INSATIABLE = ("never_reports", "never_reports", "talker", "looper", "diligent")
DENSEST = FIRST_CHARS_PER_TOKEN * CAUTION  # characters a token; denser text than assumed is another promise
PROMPT_CHARS = 30_000
PURPOSES = [["worker"], ["inspector"], ["digest"], ["report"], list(script.PURPOSES)]


def adversary(seed: int) -> tuple[Script, float]:
    """A provider that does several bad things at once, and the minutes of a session of 60 steps at most."""
    draw = random.Random(f"adversary {seed}")
    minutes = draw.uniform(2.0, 7.0)
    faults = [_fault(draw, minutes) for _ in range(draw.randint(1, 6))]
    if draw.random() < 0.1:
        faults.append({"kind": "outage", "from_minute": draw.uniform(0, minutes), "minutes": 60})
    data = {
        "worker": draw.choice(script.BEHAVIOURS),
        "usage": draw.choice(script.USAGES),
        "block_probability": draw.choice([0.0, 0.3, 1.0]),
        "latency": {
            "median_seconds": draw.uniform(6, 20),
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


class Spending(NamedTuple):
    """A run and what it may spend. meter: what its provider bills by."""

    script: Script
    minutes: float
    settings: dict
    meter: Callable[..., Meter]


class Dear(Meter):
    """Bills each call at nearly the worst that it can cost: dense text, no cache, replies near the limit.

    As a model that thinks at length before each short reply; one that got lost on its way is billed alike.
    """

    def __init__(self, draw: random.Random, most: int, *prices: float) -> None:
        super().__init__(*prices)
        self.draw, self.most = draw, most

    def bill(self, purpose: str, raw: bytes, said: Said | None) -> Bill:
        prompt = int(len(raw) / self.draw.uniform(DENSEST, 1.1 * DENSEST))
        completion = int(self.most * self.draw.uniform(0.9, 1.0))
        dollars = (prompt * self.input + completion * self.output) / 1e6
        return Bill(prompt, 0, completion, round(dollars, 9))


def spender(seed: int) -> Spending:
    """Random prices, a purse for a few calls or for all, billed failures, usage that is not told.

    Every third provider is an ordinary one, whose calls cost a part of what they might; the others are dear.
    """
    draw = random.Random(f"spender {seed}")
    prices = {"price_input_per_mtok": draw.uniform(0.01, 15), "price_output_per_mtok": draw.uniform(0.01, 75)}
    most = draw.choice([256, 2048, 8192])
    is_dear = seed % 3 != 0
    tokens = PROMPT_CHARS / DENSEST if is_dear else 15_000
    call = (tokens * prices["price_input_per_mtok"] + most * prices["price_output_per_mtok"]) / 1e6
    budget = call * (draw.uniform(4, 12) if is_dear else draw.uniform(0.5, 12))
    settings = prices | {"max_completion_tokens": most, "budget_usd": budget}
    kinds = draw.sample(CHARGED_UNSEEN if is_dear else script.TRANSPORT, draw.randint(0, 3))
    faults = [
        {"kind": kind, "probability": draw.uniform(0, 0.4), "billed": draw.random() < 0.5, "seconds": 30}
        for kind in kinds
    ]
    worker = draw.choice(INSATIABLE if is_dear else script.BEHAVIOURS)
    data = {"usage": draw.choice(HONEST_ENOUGH), "faults": faults, "worker": worker}
    meter = partial(Dear, draw, most) if is_dear else Meter
    return Spending(Script.from_dict(data, f"spender {seed}"), draw.uniform(1.5, 4.2), settings, meter)
