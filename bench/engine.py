"""HOST: the harness's own time a step over eight simulated hours, its memory, and mini-swe-agent beside it.

usage: .venv/bin/python bench/engine.py [--hours H] [--without-mini]

A whole session is simulated on a real disk (build/bench): loop, tools, prompts, both databases with their
fsyncs, events pushed; what models and shell take is left out. The same texts, commands and outputs are then
played to mini-swe-agent's agent with its scripted model, saving its trajectory after each step as it does. It
gets a virtual environment of its own below build/bench. Prints JSON: milliseconds, memory, ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / "build" / "bench"
MINI = "mini-swe-agent==2.4.6"
# What its agent loop and its scripted model import; the rest (litellm and more) is for real models.
MINI_NEEDS = ("pydantic", "jinja2", "python-dotenv", "platformdirs", "rich", "pyyaml", "requests")
SPAN = 100  # steps at either end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--without-mini", action="store_true")
    parser.add_argument("--mini", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.mini:
        return print(json.dumps(mini(json.loads(arguments.mini.read_text()), arguments.mini.parent)))
    CACHE.mkdir(parents=True, exist_ok=True)
    result, script = ours(arguments.hours)
    if not arguments.without_mini:
        theirs = beside(script)
        result["mini_swe_agent"] = theirs
        result["ratio_to_mini_swe_agent"] = round(result["mean_ms"] / theirs["mean_ms"], 3)
    print(json.dumps(result))


def ours(hours: float) -> tuple[dict[str, Any], list[dict]]:
    """Figures, and the trajectory as mini-swe-agent can play it."""
    sys.path.insert(0, str(ROOT))
    from labkit.simulation import session
    from labkit.simulation.provider import Provider

    seconds: dict[int, float] = {}
    memory: dict[int, int] = {}

    class Timed(Provider):
        """Adds the time between its calls to the step it was last asked for."""

        left = time.perf_counter()

        async def handle_async_request(self, request: Any) -> Any:
            seconds[self.step] = seconds.get(self.step, 0.0) + time.perf_counter() - self.left
            try:
                return await super().handle_async_request(request)
            finally:
                memory.setdefault(self.step, _resident())
                self.left = time.perf_counter()

    folder = CACHE / "session"
    shutil.rmtree(folder, ignore_errors=True)
    before, session.Provider = session.Provider, Timed
    try:
        result = session.simulate("honest", seed=1, minutes=hours * 60, folder=folder)
    finally:
        session.Provider = before
    steps = [seconds[step] for step in sorted(seconds) if step > 0]
    resident = [memory[step] for step in sorted(memory) if step > 0]
    told = figures(steps) | {"hours": hours, "simulated_seconds": result.simulated_seconds}
    told["memory_mb_after_100_steps"], told["memory_mb_last"] = resident[SPAN], resident[-1]
    told["memory_growth"] = round(resident[-1] / resident[SPAN], 3)
    return told, trajectory(result)


def figures(steps: list[float]) -> dict[str, Any]:
    first, last = statistics.median(steps[:SPAN]), statistics.median(steps[-SPAN:])
    return {
        "steps": len(steps),
        "mean_ms": round(statistics.mean(steps) * 1000, 2),
        "first_100_median_ms": round(first * 1000, 2),
        "last_100_median_ms": round(last * 1000, 2),
        "last_over_first": round(last / first, 3),
    }


def _resident() -> int:
    """Megabytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


def trajectory(result: Any) -> list[dict]:
    """text, command and output of each step, as recorded."""
    sql = (
        "SELECT step_number, event_type, COALESCE(command_or_input, sanitized_output, '') "
        "FROM execution_logs WHERE event_type IN ('WORKER_THOUGHT', 'TOOL_CALL', 'TOOL_RESULT') ORDER BY id"
    )
    steps: dict[int, dict] = {}
    names = {"WORKER_THOUGHT": "text", "TOOL_CALL": "command", "TOOL_RESULT": "output"}
    for number, word, said in result.query(sql):
        step = steps.setdefault(number, {"text": "", "command": "", "output": ""})
        step[names[word]] = step[names[word]] or said
    return list(steps.values())


def beside(script: list[dict]) -> dict[str, Any]:
    """The same steps in mini-swe-agent, in a process of its own."""
    python = CACHE / "mini" / "bin" / "python"
    if not (CACHE / "mini" / "installed").exists():
        uv = [str(ROOT / ".venv/bin/uv"), "-q"]
        install = [*uv, "pip", "install", "--python", str(python)]
        subprocess.run([*uv, "venv", "--clear", "--python", sys.executable, str(CACHE / "mini")], check=True)
        subprocess.run([*install, "--no-deps", MINI], check=True)
        subprocess.run([*install, *MINI_NEEDS], check=True)
        (CACHE / "mini" / "installed").touch()
    place = CACHE / "script.json"
    place.write_text(json.dumps(script))
    line = [str(python), __file__, "--mini", str(place)]
    own = os.environ | {"MSWEA_SILENT_STARTUP": "1", "MSWEA_GLOBAL_CONFIG_DIR": str(CACHE / "mini-config")}
    done = subprocess.run(line, env=own, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def mini(script: list[dict], folder: Path) -> dict[str, Any]:
    """Runs in mini-swe-agent's environment. Its shell answers from the script, as ours does."""
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.environments.local import LocalEnvironment
    from minisweagent.models.test_models import DeterministicModel, make_output

    seconds: list[float] = []

    class Scripted(DeterministicModel):
        left = time.perf_counter()

        def query(self, messages: list[dict], **more: Any) -> dict:
            seconds.append(time.perf_counter() - self.left)
            try:
                return super().query(messages, **more)
            finally:
                self.left = time.perf_counter()

    class Answering(LocalEnvironment):
        at = 0

        def execute(self, action: dict, cwd: str = "", *, timeout: int | None = None) -> dict:
            output, self.at = script[self.at]["output"], self.at + 1
            return {"output": output, "returncode": 0, "exception_info": ""}

    outputs = [make_output(step["text"], [{"command": step["command"]}], 0.0) for step in script]
    agent = DefaultAgent(
        Scripted(outputs=outputs, cost_per_call=0.0), Answering(), system_template="You work alone.",
        instance_template="{{task}}", step_limit=len(script), output_path=folder / "mini.traj.json",
    )  # fmt: skip
    agent.run("Look around.")
    return figures(seconds[1:])


if __name__ == "__main__":
    main()
