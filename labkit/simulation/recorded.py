"""HOST: a recorded run.db as a script: its model replies, verdicts and shell outputs, and how long each took.

What was recorded is read and said again, never executed.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.model import FIRST_BACKOFF
from harness.replies import ODD_REPLIES
from labkit.errors import USAGE, LabError
from labkit.simulation.agents import Agents, Said
from labkit.simulation.chance import Chance
from labkit.simulation.script import Fault, Script

# The status of an attempt in api_requests, and the fault that makes the harness write it.
FAULT_OF = {
    "rate_limit": "rate_limit",
    "server": "server",
    "connection": "reset",
    "deadline": "silent",
    "empty": "empty",
    "html": "html",
    "in_body_error": "in_body",
    "malformed": "blank",
    "refused": "refused",
}
_ENDED = re.compile(
    r"(?s)\A(.*?)\n?\[(?:no output, )?((?:exit code|ended by|killed|could not|interrupted)[^\]\n]*)\]\Z"
)
_WITHHELD = re.compile(r"The command ran \(([^)\n]*)\), but its output is withheld")
_WRAPPED = re.compile(r"(?s)<untrusted_web_content [^>]*>\n(.*)\n</untrusted_web_content [^>]*>")
NOT_RECORDED = "(simulation: the record has no output of this command)"
# Rows that stand at the last step and come after it.
AFTER_STEPS = (
    "BACKUP",
    "REPORT",
    "GUARD",
    "RUN_SEALED",
    "COMMAND",
    "RESUMED",
    "MIRROR_DEGRADED",
    "MIRROR_HEALED",
)
KEPT_DIGEST = "kept the last good digest"
# Events that carry a reply's tokens, and whose reply it is.
_SPEAKERS = {"INSPECTOR_DECISION": "inspector", "DIGEST_REFRESH": "digest", "REPORT": "report"}


@dataclass
class Attempt:
    """One recorded attempt. said: None where it failed. seconds: None where the record does not say."""

    said: Said | None
    fault: Fault | None
    seconds: float | None


class Recorded(Agents):
    """The agents of a recorded run. Once its replies are used up the diligent ones go on."""

    def __init__(self, database: Path, chance: Chance) -> None:
        super().__init__(Script(), chance)
        rows, requests, self.facts = _read(database)
        self.outputs, self.pages = _tool_results(rows, requests)
        self.between = deque(_between(rows, requests))
        said = _replies(rows)
        self.attempts: dict[str, deque[Attempt]] = defaultdict(deque)
        for purpose, attempts in _attempts(said, requests).items():
            self.attempts[purpose] = deque(attempts)
        self.total, self.played = sum(map(len, self.attempts.values())), 0

    def recorded(self, purpose: str) -> Attempt | None:
        """The next attempt of this purpose; None when there is none left."""
        if not self.attempts[purpose]:
            return None
        self.played += 1
        return self.attempts[purpose].popleft()

    def shell(self, line: str) -> tuple[str, float, str]:
        """Output, seconds, ending: of the next time this command was run, else of the last."""
        known = self.outputs.get(line)
        if not known:
            return NOT_RECORDED, 1.0, "exit code 0"
        return known.popleft() if len(known) > 1 else known[0]

    def page(self, url: str) -> tuple[str | None, float]:
        """Text and seconds; no text where no page was let through."""
        return self.pages.get(url, (None, 1.0))


def _read(database: Path) -> tuple[list[dict], list[dict], dict]:
    """Rows of execution_logs and api_requests, and what RUN_STARTED says. Raises LabError (usage)."""
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
            db.row_factory = sqlite3.Row
            rows = [dict(row) for row in db.execute("SELECT * FROM execution_logs ORDER BY id")]
            has = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'api_requests'").fetchone()
            requests = (
                [dict(row) for row in db.execute("SELECT * FROM api_requests ORDER BY id")] if has else []
            )
    except sqlite3.Error as error:
        hint = "give the run.db of a collected run, or the run's name"
        raise LabError(f"{database} can't be replayed: {error}", hint, USAGE) from error
    return rows, requests, _facts(rows)


def _facts(rows: list[dict]) -> dict:
    for row in rows:
        if row["event_type"] == "RUN_STARTED":
            try:
                facts = json.loads(row["sanitized_output"])
            except (TypeError, ValueError, RecursionError):
                return {}
            return facts if isinstance(facts, dict) else {}
    return {}


def _replies(rows: list[dict]) -> dict[str, list[Said]]:
    """By purpose, in order."""
    said: dict[str, list[Said]] = defaultdict(list)
    for row in rows:
        word, text = row["event_type"], row["sanitized_output"] or ""
        if word == "WORKER_THOUGHT":
            said["worker"].append(Said(text, completion_tokens=row["completion_tokens"]))
        elif word == "TOOL_CALL" and said["worker"]:
            said["worker"][-1].calls.append((row["tool_name"], _arguments(row)))
        elif word in _SPEAKERS and row["completion_tokens"] is not None:
            purpose = _SPEAKERS[word]
            said[purpose].append(Said(_spoken(row, text), completion_tokens=row["completion_tokens"]))
    return said


def _spoken(row: dict, text: str) -> str:
    """A reply that was unusable then is not in the record; what stands for it is unusable again."""
    if row["event_type"] == "INSPECTOR_DECISION":
        if (row["guard_reason"] or "").startswith("no verdict"):
            return "unclear"
        return json.dumps({"verdict": row["guard_status"], "reason": row["guard_reason"]})
    return "too long " * 3000 if text.startswith(KEPT_DIGEST) else text


def _arguments(row: dict) -> Any:
    if row["tool_name"] == "execute_shell":
        return {"command": row["command_or_input"] or ""}
    return row["command_or_input"] or "{}"


def _attempts(said: dict[str, list[Said]], requests: list[dict]) -> dict[str, list[Attempt]]:
    """Recorded attempts by purpose. A record without api_requests has only the replies, at unknown times."""
    if not requests:
        return {purpose: [Attempt(one, None, None) for one in known] for purpose, known in said.items()}
    left = {purpose: deque(known) for purpose, known in said.items()}
    made: dict[str, list[Attempt]] = defaultdict(list)
    for row in requests:
        purpose, seconds = row["purpose"], row["latency_seconds"]
        fault = FAULT_OF.get(row["status"])
        if fault:
            made[purpose].append(Attempt(None, Fault(fault, retry_after_seconds=0.0), seconds))
        elif left.get(purpose):
            reply = left[purpose].popleft()
            reply.finish = row["finish_reason"] or ""
            made[purpose].append(Attempt(reply, None, seconds))
        else:  # the run was killed between a reply and its event
            made[purpose].append(Attempt(None, Fault("empty"), seconds))
    return made


@dataclass
class Use:
    """One recorded tool call. reviewed: what the Inspector read last; seconds: without reviews."""

    tool: str
    given: str
    text: str
    reviewed: str
    seconds: float

    def shell(self) -> tuple[str, float, str] | None:
        """Output, seconds, ending; None where it was not run."""
        if withheld := _WITHHELD.match(self.text):
            output = self.reviewed.removeprefix(f"output: {self.given}\n")
            return output or NOT_RECORDED, self.seconds, withheld[1]
        ended = _ENDED.match(self.text)
        wrapped = _WRAPPED.search(self.text)
        return (wrapped[1] if wrapped else ended[1], self.seconds, ended[2]) if ended else None

    def page(self) -> tuple[str, float] | None:
        """Text and seconds; of a page that was withheld the text is what the Inspector's event kept."""
        if wrapped := _WRAPPED.search(self.text):
            return wrapped[1], self.seconds
        return (self.reviewed.partition("\n")[2], self.seconds) if self.reviewed else None


def _tool_results(
    rows: list[dict], requests: list[dict]
) -> tuple[dict[str, deque[tuple[str, float, str]]], dict[str, tuple[str, float]]]:
    """Shell results by command, in order; pages by address."""
    outputs: dict[str, deque[tuple[str, float, str]]] = defaultdict(deque)
    pages: dict[str, tuple[str, float]] = {}
    for use in _uses(rows, _reviewing(requests)):
        if use.tool == "execute_shell" and (done := use.shell()):
            outputs[use.given].append(done)
        elif use.tool == "browser_fetch" and (page := use.page()):
            pages[_url(use.given)] = page
    return outputs, pages


def _reviewing(requests: list[dict]) -> dict[int, float]:
    """Charged seconds that the Inspector took, by step: its attempts, and the pauses after an odd reply."""
    took: dict[int, float] = defaultdict(float)
    for row in requests:
        if row["purpose"] == "inspector":
            took[row["step_number"]] += _charged(row)
    return took


def _charged(request: dict) -> float:
    """Seconds of an attempt, and of the pause after an odd reply; an outage's pause is not charged."""
    is_odd = request["status"] in ODD_REPLIES
    pause = FIRST_BACKOFF * 2 ** min((request["attempt"] or 1) - 1, 8) if is_odd else 0.0
    return (request["latency_seconds"] or 0.0) + pause


def _between(rows: list[dict], requests: list[dict]) -> list[float]:
    """Seconds of each step that neither a model nor a tool took: backups, and the harness itself."""
    if not requests:
        return []
    known: dict[int, float] = defaultdict(float)
    for request in requests:
        if request["purpose"] != "inspector":  # its time lies within a tool's
            known[request["step_number"]] += _charged(request)
    called, ends = 0.0, {0: 0.0}
    for row in rows:
        step, elapsed = row["step_number"] or 0, row["elapsed_seconds"] or 0.0
        if row["event_type"] == "TOOL_CALL":
            called = elapsed
        elif row["event_type"] == "TOOL_RESULT":
            known[step] += elapsed - called
        if row["event_type"] not in AFTER_STEPS:
            ends[step] = elapsed
    steps = sorted(ends)
    spans = zip(steps, steps[1:], strict=False)
    return [round(max(0.0, ends[step] - ends[before] - known[step]), 3) for before, step in spans]


def _uses(rows: list[dict], reviewing: dict[int, float]) -> Iterator[Use]:
    call, reviewed = None, ""
    for row in rows:
        if row["event_type"] == "TOOL_CALL":
            call, reviewed = row, ""
        elif row["event_type"] == "INSPECTOR_DECISION":
            reviewed = row["command_or_input"] or ""
        elif row["event_type"] == "TOOL_RESULT" and call is not None:
            took = (row["elapsed_seconds"] or 0.0) - (call["elapsed_seconds"] or 0.0)
            seconds = round(max(0.0, took - reviewing[row["step_number"]]), 3)
            given, text = call["command_or_input"] or "", row["sanitized_output"] or ""
            yield Use(call["tool_name"], given, text, reviewed, seconds)
            call = None


def _url(arguments: str) -> str:
    try:
        return str(json.loads(arguments).get("url", "")).strip()
    except (ValueError, AttributeError, RecursionError):
        return ""
