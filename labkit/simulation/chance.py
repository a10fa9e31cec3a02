"""HOST: a simulation's chance: one stream of numbers a purpose, so that a change in one moves no other."""

from __future__ import annotations

import math
import random

from labkit.simulation.script import Latency

WORDS = (
    "cache", "probe", "latency", "commit", "page", "kernel", "buffer", "median", "sample", "queue", "index",
    "socket", "thread", "disk", "write", "read", "trace", "parser", "token", "result", "figure", "module",
)  # fmt: skip


class Chance:
    """`stream(name)` is the same generator each time; what it yields follows from the seed and the name."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._streams: dict[str, random.Random] = {}

    def stream(self, name: str) -> random.Random:
        return self._streams.setdefault(name, random.Random(f"{self.seed}/{name}"))

    def seconds(self, latency: Latency, name: str) -> float:
        drawn = latency.median_seconds * math.exp(self.stream(name).gauss(0.0, 1.0) * latency.spread)
        return round(min(drawn, latency.longest_seconds), 3)

    def mark(self) -> str:
        return f"{self.stream('marks').getrandbits(48):012x}"

    def words(self, count: int, name: str) -> str:
        return " ".join(self.stream(name).choices(WORDS, k=count))

    def lines(self, count: int, name: str) -> str:
        """Output as of a measuring program."""
        stream = self.stream(name)
        return "\n".join(
            f"{stream.choice(WORDS)}_{stream.randrange(1000):03d}  {stream.uniform(0, 500):9.3f} ms  "
            f"{stream.choice(WORDS)} {stream.choice(WORDS)}"
            for _ in range(count)
        )
