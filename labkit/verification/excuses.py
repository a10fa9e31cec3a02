"""HOST: what may stand for an answer of a model that the record tells nothing of. Owns how many there can be.

An answer is lost with its session or its connection: a crash, a failed call, a session that was ended. That
one happened is the guest's word. How often it can have happened is not: only this host starts a session anew,
and each failed call is an event.
"""

from __future__ import annotations

from dataclasses import dataclass

from labkit.verification.evidence import Evidence, Row
from labkit.verification.findings import amount

NEVER_SENT = ("budget_exhausted", "run_ended")  # statuses: the gateway refused the call


@dataclass(frozen=True)
class Excuses:
    """How many answers each may stand for."""

    restarts: int
    failed: int
    ended: int
    unanswered: int = 0  # decisions that say themselves that no verdict came

    @property
    def total(self) -> int:
        return self.restarts + self.failed + self.ended + self.unanswered

    def line(self, lost: int, what: str) -> str:
        """For a person: `lost` of them are in the ledger only, and what the guest says; '' for none."""
        said = {
            "restarts": self.restarts,
            "failed calls": self.failed,
            "decisions without a verdict": self.unanswered,
        }
        by = [amount(count, words) for words, count in said.items() if count]
        by += ["the end of the session"] * bool(self.ended)
        return f"{amount(lost, what)}, excused by what it tells: {', '.join(by)}" if lost else ""


def of(evidence: Evidence, purpose: str, ended: bool, unanswered: int = 0) -> Excuses:
    """purpose: of the calls; '' for all. ended: whether the session's end may have cut one off."""
    events = evidence.told
    resumed = sum(row.get("event_type") == "RESUMED" for row in events)
    starts = sum(record.get("kind") in ("opened", "started") for record in evidence.ledger.records)
    rows = [row for row in evidence.run.rows("api_requests") if _is_of(row.get("purpose"), purpose)]
    failed = sum(row.get("status") not in ("ok", "interrupted", *NEVER_SENT) for row in rows)
    cut = sum(row.get("status") == "interrupted" for row in rows)  # by a stop: no event tells of it
    errors = sum(_is_error(row, purpose) for row in events)
    return Excuses(min(resumed, starts), min(failed, errors) + min(cut, starts), int(ended), unanswered)


def _is_of(value: object, purpose: str) -> bool:
    return not purpose or value == purpose


def _is_error(row: Row, purpose: str) -> bool:
    told = str(row.get("sanitized_output"))
    return row.get("event_type") == "API_ERROR" and (not purpose or told.startswith(f"{purpose} call"))
