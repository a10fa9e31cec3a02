"""HOST: compares what the record says the agents did with what the relay saw of their model calls.

Each TOOL_CALL must be one that a completion asked for, in its order; each TOOL_RESULT must stand in a later
prompt, unless no later prompt was needed or a restart cut the step off; each result that a prompt shows must
be in the record.
Events are taken from the ledger as far as it goes: what run.db says else is `record_check`'s matter. What
`verdict_check` and `prompt_check` find comes among the findings here, so that all stand in the events' order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from labkit.gateway.views import SEEN
from labkit.gateway.witness import CUT, fingerprint
from labkit.verification import prompt_check, verdict_check
from labkit.verification.evidence import LEDGER, Evidence, Row
from labkit.verification.findings import ALTERED, FORGED, MISSING, Finding, of_event
from labkit.verification.prompt_check import PROMPTS

NOT_RUN_AGAIN = "interrupted: "  # how the harness answers a call that a restart or a full disk cut off


@dataclass
class Step:
    """A WORKER_THOUGHT and what followed of it. cut: a restart or a failure ended it before its prompt."""

    thought: Row
    calls: list[Row] = field(default_factory=list)
    results: list[Row] = field(default_factory=list)
    cut: bool = False
    exchange: Row | None = None


@dataclass
class Result:
    findings: list[Finding] = field(default_factory=list)
    matched: int = 0  # calls that a completion asked for
    seen_again: int = 0  # results that stand in a later prompt
    excused: int = 0  # results of steps that a restart or a failure cut off: the guest says so
    last: int = 0  # results that no later prompt followed
    silent: str = ""  # a sentence about verdicts that no event tells, and what excuses them


def check(evidence: Evidence) -> Result:
    """Nothing is looked at where the relay kept no hashes (a kit before that)."""
    result = Result()
    exchanges = [row for row in evidence.ledger.exchanges if SEEN in row]
    if not exchanges:
        return result
    events = evidence.told
    steps = _steps(events, result)
    _match(steps, exchanges, result)
    shown = _shown(exchanges)
    for step in steps:
        _results(step, exchanges, shown, result)
    result.findings += _unrecorded(events, exchanges)
    found, result.silent = verdict_check.check(evidence, exchanges)
    result.findings += found
    result.findings += prompt_check.check(evidence, exchanges)
    result.findings.sort(key=_by_event)
    return result


def _steps(events: list[Row], result: Result) -> list[Step]:
    steps: list[Step] = []
    for row in events:
        word = row.get("event_type")
        if word == "WORKER_THOUGHT":
            steps.append(Step(row))
        elif word in ("TOOL_CALL", "TOOL_RESULT") and not steps:
            result.findings.append(of_event(FORGED, row, "no reply of the Worker's model stands before it"))
        elif word == "TOOL_CALL":
            steps[-1].calls.append(row)
        elif word == "TOOL_RESULT":
            if len(steps[-1].results) < len(steps[-1].calls):
                steps[-1].results.append(row)
            else:
                result.findings.append(of_event(FORGED, row, "no call stands before it"))
        elif steps and _cuts(row):
            steps[-1].cut = True
    return steps


def _cuts(row: Row) -> bool:
    said = str(row.get("guard_reason") or row.get("sanitized_output") or "")
    return row["event_type"] == "RESUMED" or (
        row["event_type"] in ("GUARD", "API_ERROR") and said.startswith("step failed")
    )


def _match(steps: list[Step], exchanges: list[Row], result: Result) -> None:
    """Each step to the first later completion that said just this. One nobody said is named."""
    replies = [row for row in exchanges if row.get("purpose") == "worker" and "text" in row[SEEN]]
    at = 0
    for position, step in enumerate(steps):
        is_last = position == len(steps) - 1
        fits = (n for n in range(at, len(replies)) if not _differs(step, replies[n], is_last))
        found = next(fits, None)
        if found is None:
            near = next((n for n in range(at, len(replies)) if _resembles(step, replies[n])), None)
            result.findings.append(_mismatch(step, replies[near] if near is not None else None, is_last))
            at = at if near is None else near + 1
            step.exchange = None if near is None else replies[near]
            continue
        step.exchange, at = replies[found], found + 1
        result.matched += len(step.calls)


def _differs(step: Step, reply: Row, is_last: bool) -> tuple[str, Row] | None:
    """(kind, the first event of the step that this reply does not explain), or None."""
    said = reply[SEEN]
    asked = [] if reply.get("finish_reason") == CUT else said["calls"]
    if fingerprint(str(step.thought.get("sanitized_output") or "").strip()) != said["text"]:
        return ALTERED, step.thought
    for name in ("prompt_tokens", "completion_tokens", "cached_tokens"):
        if step.thought.get(name) != reply.get(name):
            return ALTERED, step.thought
    if reply.get("cost_usd") is not None and step.thought.get("cost_usd") != reply["cost_usd"]:
        return ALTERED, step.thought
    for row, call in zip(step.calls, asked, strict=False):
        if not _same_call(row, call):
            return ALTERED, row
    if len(step.calls) > len(asked):
        return FORGED, step.calls[len(asked)]
    if len(step.calls) < len(asked) and not (step.cut or is_last):
        return MISSING, step.calls[-1] if step.calls else step.thought
    return None


def _same_call(row: Row, call: dict) -> bool:
    text = str(row.get("command_or_input") or "")
    return row.get("tool_name") == call["name"] and fingerprint(text) == call["shown"]


def _resembles(step: Step, reply: Row) -> bool:
    """Enough of it is the same that the step was this reply's: something not empty that both say."""
    said, text = reply[SEEN], str(step.thought.get("sanitized_output") or "").strip()
    same_text = bool(text) and fingerprint(text) == said["text"]
    tokens = ("prompt_tokens", "completion_tokens")
    same_tokens = all(step.thought.get(name) and step.thought[name] == reply.get(name) for name in tokens)
    same_calls = any(_same_call(row, call) for row in step.calls for call in said["calls"])
    return same_text or same_tokens or same_calls


def _mismatch(step: Step, near: Row | None, is_last: bool) -> Finding:
    if near is None:
        return of_event(FORGED, step.thought, "no completion that the relay saw says this")
    differs = _differs(step, near, is_last)
    kind, row = differs or (ALTERED, step.thought)
    what = {
        FORGED: "no completion asked for it",
        ALTERED: f"exchange {near['id']} says something else",
        MISSING: f"exchange {near['id']} asked for a further call behind it",
    }
    return of_event(kind, row, what[kind])


def _shown(exchanges: list[Row]) -> dict[str, int]:
    """Each tool result that a prompt held -> the last exchange that held it."""
    return {
        word: row["id"]
        for row in exchanges
        for word in row[SEEN].get("messages", [])
        if word.startswith("t:")
    }


def _results(step: Step, exchanges: list[Row], shown: dict[str, int], result: Result) -> None:
    if step.exchange is None:
        return  # its call is named already
    number = step.exchange["id"]
    later = [row for row in exchanges if row["id"] > number and PROMPTS.get(row.get("purpose")) == "worker"]
    for row in step.results:
        if shown.get(f"t:{fingerprint(str(row.get('sanitized_output') or ''))}", 0) > number:
            result.seen_again += 1
        elif step.cut or str(row.get("sanitized_output") or "").startswith(NOT_RUN_AGAIN):
            result.excused += 1
        elif not later:
            result.last += 1
        else:
            kind = ALTERED if _answered(step.exchange, later[0]) else FORGED
            result.findings.append(of_event(kind, row, "no later prompt has this result"))


def _answered(reply: Row, prompt: Row) -> bool:
    """Whether the next prompt holds results behind this reply's calls: others than the record has."""
    calls = [call["call"] for call in reply[SEEN]["calls"]]
    words = prompt[SEEN].get("messages", [])
    return any(
        word.startswith("a:")
        and word.split(",")[1:] == calls
        and words[n + 1 : n + 2]
        and words[n + 1][:2] == "t:"
        for n, word in enumerate(words)
    )


def _unrecorded(events: list[Row], exchanges: list[Row]) -> list[Finding]:
    """Results that a model was shown and the record does not have."""
    results = (row for row in events if row.get("event_type") == "TOOL_RESULT")
    recorded = {f"t:{fingerprint(str(row.get('sanitized_output') or ''))}" for row in results}
    found, named = [], set()
    for row in exchanges:
        fresh = [w for w in row[SEEN].get("messages", []) if w.startswith("t:") and w not in recorded | named]
        named |= set(fresh)
        what = "it shows a tool result that the record does not have"
        found += [Finding(MISSING, LEDGER, f"exchange {row['id']}", what)] * bool(fresh)
    return found


def _by_event(finding: Finding) -> tuple[bool, int]:
    word, _, number = finding.record.partition(" ")
    return word != "event", int(number) if number.isdigit() else 0
