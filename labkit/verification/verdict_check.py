"""HOST: each of the Inspector's decisions is one that its model gave, in their order; none is kept silent."""

from __future__ import annotations

from labkit.gateway.views import SEEN
from labkit.verification import excuses
from labkit.verification.evidence import LEDGER, Evidence, Row
from labkit.verification.findings import ALTERED, FORGED, MISSING, Finding, of_event


def check(evidence: Evidence, exchanges: list[Row]) -> tuple[list[Finding], str]:
    """What is found, and a sentence about verdicts that are excused ('' for none).

    exchanges: those of which the relay kept hashes, by their ids.
    """
    given = [row for row in exchanges if row.get("purpose") == "inspector" and "text" in row[SEEN]]
    found, at, taken, unanswered = [], 0, set(), 0
    for row in evidence.told:
        if row.get("event_type") != "INSPECTOR_DECISION":
            continue
        no_verdict = _says_none_came(row)
        if no_verdict and row.get("prompt_tokens") is None:
            unanswered += 1
            continue
        number = next((n for n in range(at, len(given)) if _decides(row, given[n])), None)
        if number is None:
            found.append(of_event(FORGED, row, "the Inspector's model gave no such answer"))
            continue
        at = number + 1
        taken.add(number)
        if row.get("guard_status") != given[number][SEEN].get("verdict") and not no_verdict:
            found.append(of_event(ALTERED, row, f"exchange {given[number]['id']} has another verdict"))
    spare = [row for n, row in enumerate(given) if n not in taken and "verdict" in row[SEEN]]
    return (found, "") if found else _kept_silent(evidence, spare, unanswered)


def _decides(row: Row, reply: Row) -> bool:
    """Whether a decision can be this reply's: by its figures, else (a provider tells none) by its word."""
    same = all(row.get(name) == reply.get(name) for name in ("prompt_tokens", "completion_tokens"))
    return same and (
        row.get("prompt_tokens") is not None or row.get("guard_status") == reply[SEEN].get("verdict")
    )


def _says_none_came(row: Row) -> bool:
    return row.get("guard_status") == "BLOCK" and str(row.get("guard_reason")).startswith("no verdict")


def _kept_silent(evidence: Evidence, spare: list[Row], unanswered: int) -> tuple[list[Finding], str]:
    """Verdicts that no event tells: one for each that came too late, was asked for again, or a crash took."""
    sealed = evidence.sealed_summary
    if evidence.rebuilt or evidence.run.problem or (sealed is None and evidence.from_disks):
        return [], ""
    ended = sealed is None or "by a person" in str(sealed.get("stop_reason"))
    excused = excuses.of(evidence, "inspector", ended, unanswered)
    if len(spare) <= excused.total:
        return [], excused.line(len(spare), "verdicts that no event tells")
    what = "it has a verdict that no event tells"
    return [Finding(MISSING, LEDGER, f"exchange {spare[0].get('id')}", what)], ""
