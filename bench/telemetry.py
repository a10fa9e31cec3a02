"""HOST: a committed event in both copies of the record against an fdatasync of the same bytes, in turn.

usage: .venv/bin/python bench/telemetry.py [--rounds N] [--folder DIR]

The primary commits with synchronous=FULL, the mirror with NORMAL (harness/telemetry). The floor appends a row
of the same size to a file and makes it durable. Prints JSON: milliseconds, and the ratio of the medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from harness.telemetry import events  # noqa: E402
from harness.telemetry.recorder import Recorder  # noqa: E402

SAID = "a line of output, as commands have them\n" * 30  # 1.2 KB
WARM_UP = 50


def timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def measure(folder: Path, rounds: int) -> dict[str, object]:
    recorder = Recorder(folder / "a" / "run.db", folder / "b" / "run.db", "", time.monotonic)
    floor = os.open(folder / "floor", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def append() -> None:
        os.write(floor, SAID.encode())
        os.fdatasync(floor)

    def commit() -> None:
        recorder.event(events.TOOL_RESULT, tool_name="execute_shell", sanitized_output=SAID)

    pairs = [(timed(append), timed(commit)) for _ in range(rounds + WARM_UP)][WARM_UP:]
    floors, commits = ([pair[at] for pair in pairs] for at in (0, 1))
    os.close(floor)
    return {
        "rounds": rounds,
        "fdatasync_ms": round(statistics.median(floors) * 1000, 3),
        "commit_ms": round(statistics.median(commits) * 1000, 3),
        "ratio": round(statistics.median(commits) / statistics.median(floors), 3),
        "ratio_of_means": round(statistics.mean(commits) / statistics.mean(floors), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--folder", type=Path, default=ROOT / "build", help="on the disk to be measured")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-telemetry-", dir=arguments.folder) as place:
        print(json.dumps(measure(Path(place), arguments.rounds)))


if __name__ == "__main__":
    main()
