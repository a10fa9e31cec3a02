"""HOST: where a run stands, added up from its events: what the live view and the status line show.

Text of agents passes `plain` before it reaches a terminal.
"""

from __future__ import annotations

import json
import math
import unicodedata
from dataclasses import dataclass, field

from labkit.gateway.events import run_summary

# Characters and names that are kept of what a guest says: any of it may be megabytes.
MAX_WORD, MAX_TEXT, MAX_NAMES = 200, 4000, 5000
NAME_KEYS = ("name", "filename", "file_name", "path", "title")

WAITS_FOR = {
    "": "the harness to start in the guest; under emulation this takes about 30 s",
    "RUN_STARTED": "the first answer of the model",
    "WORKER_THOUGHT": "the tool call to start",
    "TOOL_CALL": "the tool to end",
    "TOOL_RESULT": "the model's next answer",
    "INSPECTOR_DECISION": "the reviewed action to go on",
    "API_ERROR": "the model provider, which failed; the harness tries again",
    "DIGEST_REFRESH": "the model's next answer",
    "BACKUP": "the next step",
    "REPORT": "the run to be sealed",
}


@dataclass
class Progress:
    """Apply rows of execution_logs in order; the fields then describe the run so far."""

    phase: str = ""
    step: int = 0
    elapsed: float = 0.0  # active seconds as the guest counts them
    cost_usd: float = 0.0
    thought: str = ""
    command: str = ""
    last_event: str = ""
    events: int = 0
    reviews: int = 0
    blocks: int = 0
    nudges: int = 0
    paused: bool = False  # on request
    notes: set[str] = field(default_factory=set)
    masters: set[str] = field(default_factory=set)
    scripts: set[str] = field(default_factory=set)
    summary: dict | None = None  # the run summary once the run is sealed

    def apply(self, row: dict) -> None:
        """Take in one row; unknown event words count as events and change nothing else."""
        event = self.last_event = str(row.get("event_type") or "")[:MAX_WORD]
        self.events += 1
        self.phase = str(row.get("phase") or self.phase)[:MAX_WORD]
        self.step = max(self.step, int(_number(row.get("step_number"))))
        self.elapsed = max(self.elapsed, _number(row.get("elapsed_seconds")))
        self.cost_usd += _number(row.get("cost_usd"))
        self.nudges += event == "SYSTEM_NUDGE"
        self.summary = run_summary([row]) or self.summary
        if event == "WORKER_THOUGHT":
            self.thought = str(row.get("sanitized_output") or self.thought)[:MAX_TEXT]
        elif event == "TOOL_CALL":
            self._called(str(row.get("tool_name") or ""), str(row.get("command_or_input") or ""))
        elif event == "INSPECTOR_DECISION":
            self.reviews += 1
            self.blocks += row.get("guard_status") == "BLOCK"
        elif event == "COMMAND":
            self._asked(str(row.get("command_or_input") or ""))

    @property
    def waits_for(self) -> str:
        """What the run waits for while no event comes, in words."""
        return WAITS_FOR.get(self.last_event, "the next event")

    def _asked(self, line: str) -> None:
        try:
            name = json.loads(line).get("name")
        except (ValueError, AttributeError, RecursionError):
            return
        self.paused = name == "pause" or (self.paused and name not in ("unpause", "finish", "stop"))

    def _called(self, tool: str, given: str) -> None:
        name = _written(given)
        self.command = f"{tool[:MAX_WORD]}: {name or given[:MAX_TEXT]}"
        kept = {"write_script": self.scripts, "write_scratchpad": self.notes}.get(tool)
        if kept is self.notes and name.startswith("master"):
            kept = self.masters
        if kept is not None and name and len(kept) < MAX_NAMES:
            kept.add(name)


def outside_summary(progress: Progress, run_id: str) -> dict:
    """A run summary made from the events alone, for a run that nobody in the guest seals any more."""
    return {
        "run_id": run_id,
        "status": "unsealed",
        "stop_reason": "interrupted",
        "elapsed_seconds": progress.elapsed,
        "steps": progress.step,
        "events": progress.events,
        "cost_usd": round(progress.cost_usd, 6),
        "nudges": progress.nudges,
        "notes": len(progress.notes),
        "scripts": len(progress.scripts),
        "masters": len(progress.masters),
        "inspector_reviews": progress.reviews,
        "inspector_blocks": progress.blocks,
        "made_by": "the gateway, from the ledger",
    }


def _written(arguments: str) -> str:
    """The file name in the arguments of a write tool, without its folder; empty when they are unreadable."""
    try:
        data = json.loads(arguments)
    except (ValueError, RecursionError):
        return ""
    names = [data[key] for key in NAME_KEYS if isinstance(data, dict) and isinstance(data.get(key), str)]
    return names[0].rpartition("/")[2][:MAX_WORD] if names else ""


def _number(value: object) -> float:
    return value if isinstance(value, (int, float)) and math.isfinite(value) else 0


def plain(text: str, limit: int = 2000) -> str:
    """Text of an agent on one line, safe for a terminal: control and direction characters become `·`."""
    folded = " ".join(str(text)[: limit * 4].split())
    shown = "".join("·" if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") else c for c in folded)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def clock(seconds: float) -> str:
    """Seconds as h:mm:ss or m:ss."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


def event_line(row: dict) -> str:
    """One event as a line: step, phase, what."""
    event = str(row.get("event_type"))
    what = " ".join(str(row[key]) for key in ("tool_name", "guard_status", "guard_reason") if row.get(key))
    text = row.get("command_or_input") if event in ("TOOL_CALL", "COMMAND") else row.get("sanitized_output")
    if event == "RUN_SEALED":
        text = _sealed_text(str(text))
    return plain(
        f"step {row.get('step_number') or 0}  {row.get('phase') or '-'}  {event} {what}  {text or ''}", 200
    )


def _sealed_text(text: str) -> str:
    try:
        return str(json.loads(text)["stop_reason"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return text
