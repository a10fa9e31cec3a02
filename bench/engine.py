"""HOST: the harness's own time a step over eight simulated hours, its memory, and mini-swe-agent beside it.

usage: .venv/bin/python bench/engine.py [--hours H] [--without-mini]

What is compared. Ours: a whole simulated session on a real disk (build/bench), which is everything between
two answers of a model: loop, tools but for the shell's own processes, prompts, the openai client's
requests, both databases with their fsyncs, events pushed, and the calls for digests and verdicts. Theirs:
mini-swe-agent's agent loop with its scripted model, saving its trajectory after each step as it does, in a
process and a virtual environment of its own; it plays the same texts, commands and outputs. In neither does
a model think or a shell run. Their scripted model holds one reply at a time: a model is saved with the
trajectory, and a script of the whole session would be written again at each step, which no real model does.

They take turns of SPAN steps, so that other work on the machine meets both alike. Times are by the wall
clock (disks included) and by the processor's (`cpu`), which other work disturbs less. Prints JSON:
milliseconds a step, memory, ratios; `flat` is the median of the last SPAN steps over the first SPAN. Late
in a run listings are long: the mean prompts of both spans (`..._prompt_tokens`) say how much more is sent;
`flat_before_the_report` leaves the last phase out.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time
from array import array
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / "build" / "bench"
MINI = "mini-swe-agent==2.4.6"
# What its agent loop and its scripted model import; the rest (litellm and more) is for real models.
MINI_NEEDS = ("pydantic", "jinja2", "python-dotenv", "platformdirs", "rich", "pyyaml", "requests")
SPAN = 100  # steps at either end, and of one turn
Times = tuple[float, float]  # wall and processor seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--without-mini", action="store_true")
    parser.add_argument("--mini", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.mini:
        return mini(arguments.mini)
    CACHE.mkdir(parents=True, exist_ok=True)
    theirs = None if arguments.without_mini else Beside()
    result = ours(arguments.hours, theirs)
    if theirs:
        result["mini_swe_agent"] = beside = figures(theirs.steps)
        for name in ("mean_ms", "mean_cpu_ms"):
            result[f"ratio_to_mini_swe_agent_of_{name}"] = round(result[name] / beside[name], 3)
    print(json.dumps(result))


def now() -> Times:
    return time.perf_counter(), time.process_time()


class Stopwatch:
    """The time between a model's answer and its next question, by step. Small, for memory is measured too."""

    def __init__(self) -> None:
        self.wall, self.cpu = array("d"), array("d")
        self.left = now()

    def asked(self, step: int) -> None:
        for times, at, left in zip((self.wall, self.cpu), now(), self.left, strict=True):
            times.extend([0.0] * (step + 1 - len(times)))
            times[step] += at - left

    def answered(self) -> None:
        self.left = now()

    def steps(self) -> list[Times]:
        """From step 1 on."""
        return list(zip(self.wall, self.cpu, strict=True))[1:]


def ours(hours: float, theirs: Beside | None) -> dict[str, Any]:
    sys.path.insert(0, str(ROOT))
    import openai.types.chat  # noqa: F401 - else the first step would pay for it

    from labkit.simulation import session
    from labkit.simulation.provider import Provider

    folder, memory = CACHE / "session", [0.0, 0.0]  # megabytes after SPAN steps, and now
    watch = Stopwatch()

    class Timed(Provider):
        async def handle_async_request(self, request: Any) -> Any:
            watch.asked(self.step)
            try:
                return await super().handle_async_request(request)
            finally:
                memory[self.step > SPAN] = _resident()
                if theirs and self.step // SPAN > theirs.turns:
                    theirs.play()
                watch.answered()

    shutil.rmtree(folder, ignore_errors=True)
    before, session.Provider = session.Provider, Timed
    try:
        result = session.simulate("honest", seed=1, minutes=hours * 60, folder=folder)
    finally:
        session.Provider = before
    if theirs:
        theirs.play()
        theirs.close()
    steps = watch.steps()
    told = figures(steps) | prompts(folder)
    before = figures(steps[: report_begins(folder)])
    told |= {f"{name}_before_the_report": before[name] for name in ("flat", "flat_cpu")}
    told |= {"hours": hours, "simulated_seconds": result.simulated_seconds}
    told |= {"memory_mb_after_100_steps": round(memory[0], 1), "memory_mb_last": round(memory[1], 1)}
    return told | {"memory_growth": round(memory[1] / memory[0], 3)}


def figures(steps: list[Times]) -> dict[str, Any]:
    told: dict[str, Any] = {"steps": len(steps)}
    for name, at in (("", 0), ("_cpu", 1)):
        times = [step[at] * 1000 for step in steps]
        first, last = statistics.median(times[:SPAN]), statistics.median(times[-SPAN:])
        told |= {f"mean{name}_ms": round(statistics.mean(times), 2)}
        told |= {f"first_100_median{name}_ms": round(first, 2), f"last_100_median{name}_ms": round(last, 2)}
        told |= {f"flat{name}": round(last / first, 3)}
    return told


def report_begins(folder: Path) -> int:
    """Steps before the last phase, in which other tools are used than in the first."""
    sql = "SELECT MIN(step_number) FROM execution_logs WHERE phase = 'FINAL_REPORT'"
    with contextlib.closing(sqlite3.connect(folder / "telemetry" / "run.db")) as db:
        return db.execute(sql).fetchone()[0] - 1


def prompts(folder: Path) -> dict[str, int]:
    """Mean tokens of the Worker's prompts in the first and in the last SPAN steps."""
    sql = "SELECT prompt_tokens FROM execution_logs WHERE event_type = 'WORKER_THOUGHT' ORDER BY id"
    with contextlib.closing(sqlite3.connect(folder / "telemetry" / "run.db")) as db:
        tokens = [row[0] for row in db.execute(sql)]
    first, last = (round(statistics.mean(some)) for some in (tokens[:SPAN], tokens[-SPAN:]))
    return {"first_100_prompt_tokens": first, "last_100_prompt_tokens": last}


def _resident() -> float:
    """Megabytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def trajectory(folder: Path, after: int) -> list[dict]:
    """text, command and output of each step behind that one, as recorded so far."""
    sql = (
        "SELECT step_number, event_type, COALESCE(command_or_input, sanitized_output, '') "
        "FROM execution_logs WHERE event_type IN ('WORKER_THOUGHT', 'TOOL_CALL', 'TOOL_RESULT') "
        "AND step_number > ? ORDER BY id"
    )
    steps: dict[int, dict] = {}
    names = {"WORKER_THOUGHT": "text", "TOOL_CALL": "command", "TOOL_RESULT": "output"}
    with contextlib.closing(sqlite3.connect(folder / "telemetry" / "run.db")) as db:
        for number, word, said in db.execute(sql, (after,)):
            step = steps.setdefault(number, {"text": "", "command": "", "output": ""})
            step[names[word]] = step[names[word]] or said
    return list(steps.values())


class Beside:
    """mini-swe-agent in a process of its own: plays the steps that are recorded, and waits for its turn."""

    def __init__(self) -> None:
        python = _installed()
        line = [str(python), __file__, "--mini", str(CACHE / "mini.traj.json")]
        own = {"MSWEA_SILENT_STARTUP": "1", "MSWEA_GLOBAL_CONFIG_DIR": str(CACHE / "mini-config")}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(line, env=os.environ | own, **pipes)
        self.turns, self.steps = 0, []

    def play(self) -> None:
        """All that is recorded so far and not yet played."""
        self.turns += 1
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.process.stdout.readline()

    def close(self) -> None:
        self.process.stdin.close()
        self.steps = [tuple(times) for times in json.loads(self.process.stdout.read())]
        self.process.wait()


def _installed() -> Path:
    """Its python; installs it the first time."""
    python = CACHE / "mini" / "bin" / "python"
    if not (CACHE / "mini" / "installed").exists():
        uv = [str(ROOT / ".venv/bin/uv"), "-q"]
        install = [*uv, "pip", "install", "--python", str(python)]
        subprocess.run([*uv, "venv", "--clear", "--python", sys.executable, str(CACHE / "mini")], check=True)
        subprocess.run([*install, "--no-deps", MINI], check=True)
        subprocess.run([*install, *MINI_NEEDS], check=True)
        (CACHE / "mini" / "installed").touch()
    return python


def mini(saved: Path) -> None:
    """Runs in mini-swe-agent's environment: a line in, a turn played, a line out; at the end all times.

    Its shell answers from the record, as ours does from the script.
    """
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.environments.local import LocalEnvironment
    from minisweagent.models.test_models import DeterministicModel, make_output

    script: list[dict] = []
    watch = Stopwatch()

    def more(played: int) -> None:
        """The turn is over, the last step's saving included: say so, and wait for another."""
        while not script:
            if played:
                print(flush=True)
            if not sys.stdin.readline():
                print(json.dumps(watch.steps()))
                raise SystemExit
            script.extend(trajectory(CACHE / "session", played))

    class Scripted(DeterministicModel):
        asked = 0

        def query(self, messages: list[dict], **told: Any) -> dict:
            if self.asked:  # what came before the first question is no step
                watch.asked(self.asked)
            more(self.asked)
            self.asked += 1
            step = script[0]
            self.config.outputs = [make_output(step["text"], [{"command": step["command"]}], 0.0)]
            self.current_index = -1
            try:
                return super().query(messages, **told)
            finally:
                watch.answered()

    class Answering(LocalEnvironment):
        def execute(self, action: dict, cwd: str = "", *, timeout: int | None = None) -> dict:
            return {"output": script.pop(0)["output"], "returncode": 0, "exception_info": ""}

    agent = DefaultAgent(
        Scripted(outputs=[], cost_per_call=0.0), Answering(), system_template="You work alone.",
        instance_template="{{task}}", output_path=saved,
    )  # fmt: skip
    agent.run("Look around.")


if __name__ == "__main__":
    main()
