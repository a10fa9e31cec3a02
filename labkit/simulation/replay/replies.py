"""HOST: the model calls of a record, in their order: what was said, what failed and how, how long it took."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Any

from labkit.simulation.agents import Said
from labkit.simulation.script import Fault

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
    "budget_exhausted": "budget_exhausted",
    "run_ended": "run_ended",
}
KEPT_DIGEST = "kept the last good digest"
# Events that carry a reply's tokens, and whose reply it is.
_SPEAKERS = {"INSPECTOR_DECISION": "inspector", "DIGEST_REFRESH": "digest", "REPORT": "report"}


@dataclass
class Attempt:
    """One recorded attempt. said: None where it failed. seconds: None where the record does not say."""

    said: Said | None
    fault: Fault | None
    seconds: float | None


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


def attempts(rows: list[dict], requests: list[dict]) -> dict[str, list[Attempt]]:
    """Recorded attempts by purpose. A record without api_requests has only the replies, at unknown times."""
    said = _replies(rows)
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
