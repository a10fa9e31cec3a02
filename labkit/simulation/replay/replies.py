"""HOST: the model calls of a record, in their order: what was said, what failed and how, how long it took."""

from __future__ import annotations

import json
import re
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Any

from labkit.simulation.agents import Said
from labkit.simulation.replay.faults import SKIPPED, fault_of
from labkit.simulation.replay.pace import followed, waited
from labkit.simulation.script import REPLY, Fault

KEPT_DIGEST = "kept the last good digest"
# Why a shell's arguments were not run as a command; harness/tools/__init__.py.
_UNREADABLE = re.compile(r"Not run: (the arguments are not|the argument 'command' (is missing|must be))")
_SURPLUS = re.compile(r"Not run: there is no argument '([^']*)'")
# What an Inspector said whose answer was none, by the reason that the record has.
_NO_VERDICT = {
    "no verdict: the answer is not one": "[]",
    "no verdict: neither": "{}",
    "no verdict": "unclear",
}
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
    for row, after in zip(rows, [*rows[1:], {}], strict=True):
        word, text = row["event_type"], row["sanitized_output"] or ""
        if word == "WORKER_THOUGHT":
            said["worker"].append(Said(text, completion_tokens=row["completion_tokens"]))
        elif word == "TOOL_CALL" and said["worker"]:
            said["worker"][-1].calls.append(
                (row["tool_name"], _arguments(row, after.get("sanitized_output") or ""))
            )
        elif word in _SPEAKERS and row["completion_tokens"] is not None:
            purpose = _SPEAKERS[word]
            said[purpose].append(Said(_spoken(row, text), completion_tokens=row["completion_tokens"]))
    return said


def _spoken(row: dict, text: str) -> str:
    """A reply that was unusable then is not in the record; what stands for it is unusable in the same way."""
    if row["event_type"] == "INSPECTOR_DECISION":
        reason = row["guard_reason"] or ""
        unusable = next((said for words, said in _NO_VERDICT.items() if reason.startswith(words)), None)
        return unusable or json.dumps({"verdict": row["guard_status"], "reason": reason})
    return "too long " * 3000 if text.startswith(KEPT_DIGEST) else text


def _arguments(row: dict, result: str) -> Any:
    """As they were given. Of a shell's the record has the command alone, where there was one."""
    given = row["command_or_input"] or ""
    if row["tool_name"] != "execute_shell" or _UNREADABLE.match(result):
        return given or "{}"
    surplus = _SURPLUS.match(result)
    return {"command": given} | ({surplus[1]: ""} if surplus else {})


def attempts(rows: list[dict], requests: list[dict]) -> dict[str, list[Attempt]]:
    """Recorded attempts by purpose. A record without api_requests has only the replies, at unknown times."""
    said = _replies(rows)
    if not requests:
        return {purpose: [Attempt(one, None, None) for one in known] for purpose, known in said.items()}
    left = {purpose: deque(known) for purpose, known in said.items()}
    made: dict[str, list[Attempt]] = defaultdict(list)
    later = followed(requests)
    for row in requests:
        if row["status"] != SKIPPED:
            known = left.get(row["purpose"], deque())
            made[row["purpose"]].append(_attempt(row, known, waited(row, later.get(row["id"]))))
    return made


def _attempt(row: dict, known: deque[Said], pause: float) -> Attempt:
    seconds = row["latency_seconds"]
    if fault := fault_of(row, pause):
        return Attempt(Said("cut") if fault.kind in REPLY else None, fault, seconds)
    if not known:  # the run was killed between a reply and its event
        return Attempt(None, Fault("empty"), seconds)
    reply = known.popleft()
    reply.finish = row["finish_reason"] or ""
    return Attempt(reply, None, seconds)


def cut_after(rows: list[dict], requests: list[dict]) -> float | None:
    """Seconds into its last call at which a signal or a person ended the run; None where nobody did."""
    last = requests[-1] if requests else {}
    if last.get("status") == SKIPPED:
        return last["latency_seconds"] or 0.0
    ended = rows[-1]["sanitized_output"] or "" if rows[-1]["event_type"] == "RUN_SEALED" else ""
    return 0.0 if '"stop_reason": "interrupted"' in ended else None
