"""HOST: what eight hours of prompts cost when the window grows and is cut, and when it slides by one step.

usage: .venv/bin/python bench/context.py [--hours H] [--replay RUN.DB] [--cached-reads SHARE]

One recorded trajectory, a simulated session's or the run.db that is given, is replayed under each policy: a
window that grows to 18 steps and is cut to 6, one of 18 steps that slides (as large), and one of 12 (as large
on average). So the Worker's words, calls and results are the same; digests beyond the recorded ones are made
up. Input tokens of all calls count, those in a cached prefix a tenth. Prints JSON: tokens, the share that was
cached, effective input tokens a step, ratios; of each replay how many of the recorded attempts were played.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from labkit.simulation.session import simulate

WINDOWS = {
    "grow_and_cut": {"window_max_steps": 18, "window_min_steps": 6},
    "slide_by_one": {"window_max_steps": 18, "window_min_steps": 18},
    "slide_by_one_of_12": {"window_max_steps": 12, "window_min_steps": 12},
}


def recorded(hours: float, place: Path) -> Path:
    """The run.db of a session under the shipped settings."""
    result = simulate("honest", seed=1, minutes=hours * 60, settings=WINDOWS["grow_and_cut"], folder=place)
    return result.folder / "telemetry/sealed/run.db"


def played(run_db: Path, settings: dict, cached_reads: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="bench-context-") as place:
        result = simulate(replay=run_db, settings=settings, folder=Path(place) / "s")
        sql = "SELECT SUM(prompt_tokens), SUM(cached_tokens) FROM api_requests"
        prompt, cached = result.query(sql)[0]
    effective = prompt - cached + cached_reads * cached
    return {
        "steps": result.summary["steps"],
        "played": result.replayed["played"],
        "digests": result.summary["digest_refreshes"],
        "prompt_tokens": prompt,
        "cached_share": round(cached / prompt, 3),
        "effective_tokens_a_step": round(effective / result.summary["steps"], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=8.0, help="of the session that is simulated first")
    parser.add_argument("--replay", type=Path, help="a run.db in its place")
    parser.add_argument("--cached-reads", type=float, default=0.1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-context-") as place:
        run_db = arguments.replay or recorded(arguments.hours, Path(place) / "recorded")
        result: dict = {
            name: played(run_db, settings, arguments.cached_reads) for name, settings in WINDOWS.items()
        }
    ours, slid, slid_12 = (result[name]["effective_tokens_a_step"] for name in WINDOWS)
    ratios = {"ratio": round(ours / slid, 3), "ratio_to_12": round(ours / slid_12, 3)}
    print(json.dumps(result | ratios))


if __name__ == "__main__":
    main()
