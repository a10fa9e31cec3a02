"""HOST: the body of `lab simulate`: inventory and options become settings, the result becomes sentences."""

from __future__ import annotations

import os
import shlex
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit import config, plan, runs, texts
from labkit.errors import USAGE, LabError
from labkit.simulation.ending import unwound
from labkit.simulation.result import Result
from labkit.simulation.sandbox import keep, made
from labkit.simulation.script import Script, shipped
from labkit.simulation.session import simulate

INTERRUPTED = 130  # as any verb ends that Ctrl-C cut off


@dataclass(frozen=True)
class Wanted:
    """What was typed; None: not given."""

    inventory: Path | None
    hours: float | None
    seed: int
    provider: str
    replay: str | None
    budget: float | None
    task: Path | None
    prompt: Path | None
    keep: Path | None


def scripts() -> dict[str, str]:
    """Shipped scripts: name and what it is about."""
    return {name: Script.load(name).about for name in shipped()}


def run(wanted: Wanted) -> Result:
    """One session as asked for. Raises LabError: usage, before anything is made; 130 after Ctrl-C."""
    with unwound(), warnings.catch_warnings():
        # Ctrl-C may fall between making a coroutine and awaiting it.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        try:
            return _run(wanted)
        except KeyboardInterrupt:
            pass  # raised below, where its frames are gone and with them what they would warn of
    raise LabError("the simulation was interrupted", "nothing of it is kept", INTERRUPTED)


def _run(wanted: Wanted) -> Result:
    if wanted.keep is not None and wanted.keep.exists():
        raise LabError(f"{wanted.keep} exists", "name a new folder: nothing is overwritten", USAGE)
    script = Script.load(wanted.provider)
    options: dict[str, Any] = {
        "seed": wanted.seed,
        "settings": settings(wanted, script),
        "replay": None if wanted.replay is None else recorded(wanted.replay),
    }
    if wanted.keep is None:
        return simulate(script, **options)
    with made() as folder:
        result = simulate(script, folder=folder, **options)
        keep(result, wanted.keep)
    return result


def settings(wanted: Wanted, script: Script) -> dict[str, Any]:
    """run.json's keys as `lab run` would make them, without those that the script or the record decides."""
    lab = config.load(wanted.inventory)
    if wanted.hours is not None and not 1 / 60 <= wanted.hours <= plan.MAX_MINUTES / 60:
        most = plan.MAX_MINUTES // 60
        raise LabError(
            f"--hours {wanted.hours:g} is not between a minute and {most} hours", "0.5 is half an hour", USAGE
        )
    minutes = None if wanted.hours is None else wanted.hours * 60
    asked = plan.make(lab, minutes, wanted.budget, None, None, wanted.task, wanted.prompt)
    values = plan.harness_settings(lab, asked)
    given = {"minutes": minutes, "budget_usd": wanted.budget, "task": wanted.task, "prompt": wanted.prompt}
    typed = {key for key, value in given.items() if value is not None}
    decided = set(script.settings) | ({"minutes", "budget_usd"} if wanted.replay is not None else set())
    if wanted.replay is not None and not typed & {"prompt", "task"}:
        decided |= {"prompt", "task"}  # the record has the one that the Worker was given
    if "prompt" not in typed and (own := script.settings.get("prompt")):
        texts.demand_blanks(f"the prompt of provider script {script.name}", own, values["task"] or "")
    return {key: value for key, value in values.items() if key in typed or key not in decided}


def recorded(which: str) -> Path:
    """The run.db of a path, a run's folder, a run_id or `last`."""
    path = Path(which)
    if path.is_file():
        return path
    folder = path if (path / "run.db").is_file() else runs.find(which)
    return folder / "run.db"


def _spoken(seconds: float) -> str:
    return (
        f"{seconds / 3600:.2f} simulated hours"
        if seconds >= 3600
        else f"{seconds / 60:.1f} simulated minutes"
    )


def sentences(result: Result, kept: Path | None) -> str:
    """What a person wants to know of it."""
    summary = result.summary
    report = f"by the {summary['final_report_by']}" if summary["final_report_written"] else "MISSING"
    lines = [
        f"{summary['steps']} steps in {_spoken(result.simulated_seconds)}, "
        f"{result.wall_seconds:.1f} s of yours; ended by: {summary['stop_reason']}; report {report}",
        f"cost ${summary['cost_usd']:.4f} by the harness's books, ${result.billed_usd:.4f} billed; "
        f"{summary['prompt_tokens']:,} tokens in ({summary['cached_tokens']:,} cached), "
        f"{summary['completion_tokens']:,} out",
        "phases: " + ", ".join(f"{phase['name']} {phase['steps']}" for phase in result.phases),
        "faults met: " + (", ".join(f"{kind} {n}" for kind, n in result.faults.items()) or "none"),
    ]
    if result.replayed:
        lines.append(
            f"replayed {result.replayed['played']} of {result.replayed['attempts']} recorded attempts"
        )
    if kept is not None:
        place = kept if os.sep in str(kept) else f"./{kept}"
        lines.append(f"the record is in {kept}; `lab query QUESTION --run {shlex.quote(str(place))}` asks it")
    return "\n".join(lines)
