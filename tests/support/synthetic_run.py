"""TESTS: builds a believable collected run, smaller than a real one and the same at every call.

Numbers that tests assert are counted here while the rows are made (`Counts`), not by SQL.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

SCHEMA = Path(__file__).parents[2] / "harness" / "telemetry" / "schema.sql"
RUN_ID = "20261129-201202-b0dd88"
MINUTES = 120.0
PHASES = (("EXPLORATION", 0.0), ("DEVELOPMENT", 0.20), ("SYNTHESIS", 0.5333), ("FINAL_REPORT", 0.75))
COLUMNS = (
    "step_number",
    "elapsed_seconds",
    "phase",
    "event_type",
    "tool_name",
    "command_or_input",
    "sanitized_output",
    "guard_status",
    "guard_reason",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "cost_usd",
)
_TOOLS = (
    "execute_shell",
    "write_scratchpad",
    "execute_shell",
    "read_file",
    "browser_fetch",
    "list_workspace",
)


@dataclass
class Counts:
    """What was written, by kind."""

    events: Counter = field(default_factory=Counter)
    tools: Counter = field(default_factory=Counter)
    gate: Counter = field(default_factory=Counter)
    files: Counter = field(default_factory=Counter)
    prompt: Counter = field(default_factory=Counter)
    cost: float = 0.0
    steps: int = 0


def build(root: Path, run_id: str = RUN_ID, steps: int = 80) -> tuple[Path, Counts]:
    """A whole `runs/<run_id>` folder under `root`; returns it and the counts."""
    folder = Path(root) / run_id
    folder.mkdir(parents=True)
    counts = database(folder / "run.db", run_id, steps)
    (folder / "mirror.db").write_bytes((folder / "run.db").read_bytes())
    _tree(folder)
    (folder / "summary.json").write_text(json.dumps(summary(run_id, counts), indent=1))
    manifest = {"run_id": run_id, "extraction": {"complete": True, "files": 8}, "skipped": []}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1))
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}" for path in files]
    (folder / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    return folder, counts


def database(path: Path, run_id: str = RUN_ID, steps: int = 80) -> Counts:
    """A run.db at `path`, by the harness's own schema."""
    connection = sqlite3.connect(path)
    connection.executescript(SCHEMA.read_text())
    counts = Counts(steps=steps)
    _event(connection, counts, 0, 0.0, "EXPLORATION", "RUN_STARTED", sanitized_output='{"minutes": 120}')
    for step in range(1, steps + 1):
        _step(connection, counts, step, MINUTES * 60 * step / (steps + 1))
    end = {"elapsed_seconds": MINUTES * 60 + 24, "phase": "FINAL_REPORT"}
    _event(
        connection, counts, steps, end["elapsed_seconds"], end["phase"], "RUN_SEALED", sanitized_output="{}"
    )
    _state(connection, run_id, counts)
    connection.commit()
    connection.close()
    return counts


def summary(run_id: str, counts: Counts) -> dict:
    """A run summary that agrees with the counts."""
    return {
        "run_id": run_id,
        "status": "sealed",
        "stop_reason": "time limit reached",
        "elapsed_seconds": MINUTES * 60 + 24,
        "steps": counts.steps,
        "api_requests": counts.events["WORKER_THOUGHT"],
        "cost_usd": counts.cost,
        "events": sum(counts.events.values()),
        "mirror": "ok",
        "final_report_written": True,
    }


def _step(connection: sqlite3.Connection, counts: Counts, step: int, seconds: float) -> None:
    phase = [name for name, start in PHASES if seconds >= start * MINUTES * 60][-1]
    tool = "write_script" if phase == "DEVELOPMENT" and step % 4 == 0 else _TOOLS[step % len(_TOOLS)]
    tokens = {
        "prompt_tokens": 9000 + 37 * step,
        "completion_tokens": 300 + step,
        "cached_tokens": 7000 + step,
    }
    cost = round(tokens["prompt_tokens"] * 1e-7 + tokens["completion_tokens"] * 2e-7, 6)
    _event(connection, counts, step, seconds, phase, "WORKER_THOUGHT", cost_usd=cost, **tokens)
    _event(
        connection, counts, step, seconds + 1, phase, "TOOL_CALL", tool_name=tool, command_or_input="ls -l"
    )
    gate = {"guard_status": "BYPASS"}
    if tool == "browser_fetch":
        verdict = "BLOCK" if step % 5 == 0 else "ALLOW"
        gate = {"guard_status": verdict, "guard_reason": "looked at"}
        _event(connection, counts, step, seconds + 2, phase, "INSPECTOR_DECISION", **gate)
    _event(connection, counts, step, seconds + 3, phase, "TOOL_RESULT", tool_name=tool, **gate)
    if tool in ("write_scratchpad", "write_script"):
        _file(connection, counts, step, "SCRIPT" if tool == "write_script" else "SCRATCHPAD")
    if step % 10 == 0:
        _event(connection, counts, step, seconds + 4, phase, "BACKUP")
        _event(connection, counts, step, seconds + 5, phase, "SYSTEM_NUDGE", sanitized_output="time left")


def _event(
    connection: sqlite3.Connection, counts: Counts, step: int, seconds: float, phase: str, kind: str, **more
):
    row = {"step_number": step, "elapsed_seconds": seconds, "phase": phase, "event_type": kind, **more}
    marks = ", ".join("?" for _ in COLUMNS)
    connection.execute(
        f"INSERT INTO execution_logs ({', '.join(COLUMNS)}) VALUES ({marks})", [row.get(c) for c in COLUMNS]
    )
    counts.events[kind] += 1
    counts.cost += row.get("cost_usd") or 0.0
    counts.prompt[phase] += row.get("prompt_tokens") or 0
    if kind == "TOOL_CALL":
        counts.tools[row["tool_name"]] += 1
    if row.get("guard_status"):
        counts.gate[row["guard_status"]] += 1


def _file(connection: sqlite3.Connection, counts: Counts, step: int, kind: str) -> None:
    folder, ending = ("scripts", "py") if kind == "SCRIPT" else ("notes", "md")
    if kind == "SCRATCHPAD" and counts.files.total() % 6 == 5:
        kind = "MASTER_SUMMARY"
    connection.execute(
        "INSERT INTO file_registry (file_path, file_type) VALUES (?, ?)", (f"{folder}/f{step}.{ending}", kind)
    )
    counts.files[kind] += 1


def _state(connection: sqlite3.Connection, run_id: str, counts: Counts) -> None:
    state = {"run_id": run_id, "step": str(counts.steps), "summary": json.dumps(summary(run_id, counts))}
    connection.executemany("INSERT INTO session_state (key, value) VALUES (?, ?)", state.items())
    connection.execute("INSERT INTO prompts VALUES ('worker', 'You work alone.', 'ab')")
    connection.executemany(
        "INSERT INTO api_requests (purpose, attempt, status, cost_usd, cost_source) VALUES (?, 1, ?, ?, ?)",
        [
            ("worker", "ok", 0.002, "billed"),
            ("worker", "ok", 0.001, "price table"),
            ("worker", "rate_limit", 0.0, "free"),
            ("inspector", "server", None, None),
        ],
    )


def _tree(folder: Path) -> None:
    for name, text in {
        "workspace/notes/hash_speed.md": "sha256 is fastest here\n",
        "workspace/scripts/bench.py": "print(1)\n",
        "backup/notes/hash_speed.md": "sha256 is fastest here\n",
        "outputs/step-00001.txt": "total 0\n",
        "gateway/events.jsonl": "{}\n",
        "console.log": "login: \n",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
