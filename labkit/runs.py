"""HOST: the collected runs of a person. Owns where they are, what each one was, and finding one by name."""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path

from labkit import plain_file
from labkit.analysis.text import one_line
from labkit.errors import USAGE, LabError
from labkit.intake import is_complete, receive
from labkit.sums import NAME, verify_sums

__all__ = ["RunInfo", "default_root", "find", "list_runs", "receive", "verify_sums"]

MAX_NAME = 100
MAX_SUMMARY_BYTES = 1_000_000
READ = ("run.db", "manifest.json", "summary.json", NAME)  # what the list or a question reads of a run
# The guest wrote it and a terminal shows it: words and plain punctuation only.
_PLAIN = re.compile(r"[\w ,.:;()'-]{1,80}", re.ASCII)


@dataclass(frozen=True)
class RunInfo:
    """One line of `lab runs`. minutes and cost_usd (dollars) are None where the run does not say.

    sealed: the harness ended the run itself; otherwise the host wrote the summary, or there is none.
    damaged: a file of it is none that can be read; stop_reason says which.
    """

    run_id: str
    path: Path
    minutes: float | None
    steps: int | None
    stop_reason: str
    cost_usd: float | None
    complete: bool
    sealed: bool = False
    damaged: bool = False


def default_root() -> Path:
    """$LAB_RUNS, else `runs/` here or one folder up (a notebook's working folder is notebooks/)."""
    if named := os.environ.get("LAB_RUNS"):
        return Path(named)
    here = Path.cwd()
    return next((path for path in (here / "runs", here.parent / "runs") if path.is_dir()), here / "runs")


def list_runs(root: Path | None = None) -> list[RunInfo]:
    """Every run of the folder, oldest first; one whose collect did not finish is listed as incomplete."""
    root = Path(root) if root else default_root()
    if os.environ.get("LAB_RUNS") == str(root) and not root.is_dir():  # `runs/` by itself need not be there
        raise LabError(
            f"LAB_RUNS names {root}, and there is no such folder",
            "correct it, or make the folder; without LAB_RUNS it is runs/ where you are",
            USAGE,
        )
    folders = sorted(path for path in root.glob("*") if path.is_dir() and _looks_like_a_run(path))
    partial = sorted(path for path in root.glob(".*.partial") if path.is_dir())
    interrupted = [
        RunInfo(path.name[1:].removesuffix(".partial"), path, None, None, "collect not finished", None, False)
        for path in partial
    ]
    return [_info(path) for path in folders] + interrupted


def find(which: str = "last", root: Path | None = None) -> Path:
    """The folder of a run: `last`, a run_id, the unique beginning of one, or a folder of a run.

    Raises LabError (USAGE) when none or several fit; the hint names what exists.
    """
    root = Path(root) if root else default_root()
    is_path = os.sep in which
    here = which if which and _looks_like_a_run(Path(os.path.abspath(which))) else ""
    if is_path and here:
        return Path(here)
    known = [info for info in list_runs(root) if not info.path.name.startswith(".")]
    if here and which != "last" and not any(info.run_id.startswith(which) for info in known):
        return Path(here)
    if not known:
        asked = f"{_quoted(which)} is no collected run, and " if is_path else ""
        raise LabError(
            f"{asked}there is no collected run in {root}", "`lab run`, then `lab collect` brings one", USAGE
        )
    if which == "last":
        return _last(known)
    exact = [info.path for info in known if info.run_id == which]
    fitting = exact or [info.path for info in known if which and info.run_id.startswith(which)]
    if len(fitting) != 1:
        names = ", ".join(one_line(path.name) for path in fitting or [info.path for info in known[-5:]])
        begins = f"{'several runs begin' if fitting else 'no collected run begins'} with {_quoted(which)}"
        no_folder = f"{_quoted(which)} is no collected run: it is no folder with a run.db"
        raise LabError(no_folder if is_path and not fitting else begins, f"there is: {names}", USAGE)
    return fitting[0]


def _quoted(which: str) -> str:
    """What was typed, on one line and no longer than a name."""
    return repr(which if len(which) <= MAX_NAME else f"{which[:MAX_NAME]}...")


def _last(known: list[RunInfo]) -> Path:
    """The last by name is the last in time (run_ids begin with it); a whole one if there is one."""
    whole = [info for info in known if info.complete]
    return (whole or known)[-1].path


def _looks_like_a_run(path: Path) -> bool:
    return not path.name.startswith(".") and any(map(_is_there, (path / "run.db", path / "manifest.json")))


def _is_there(path: Path) -> bool:
    """Something that is no folder: what it is is said of the run. What can't be a name is nowhere."""
    return os.path.exists(path) and not os.path.isdir(path)


def _info(path: Path) -> RunInfo:
    if odd := next((name for name in READ if plain_file.is_odd(path / name)), ""):
        reason = f"damaged: {odd}: {plain_file.WHY}"
        return RunInfo(path.name, path, None, None, reason, None, complete=False, damaged=True)
    summary = _summary(path)
    seconds, cost = _finite(summary.get("elapsed_seconds")), _finite(summary.get("cost_usd"))
    steps = _finite(summary.get("steps"))
    reason = summary.get("stop_reason")
    return RunInfo(
        run_id=path.name,
        path=path,
        minutes=None if seconds is None else round(seconds / 60, 1),
        steps=None if steps is None else int(steps),
        stop_reason=reason if isinstance(reason, str) and _PLAIN.fullmatch(reason) else "no summary",
        cost_usd=cost,
        complete=is_complete(path),
        sealed=summary.get("status") == "sealed",
    )


def _summary(path: Path) -> dict:
    """summary.json as the guest wrote it: anything can be in there."""
    try:
        content = json.loads(plain_file.read(path / "summary.json", MAX_SUMMARY_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None
