"""HOST: what a check can find: a kind, a place, a sentence. Owns the words and the limit of a list."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any

MISSING = "missing"  # something that was there, or must be, is not
ALTERED = "altered"  # it is there, and says something else
FORGED = "forged"  # it is there, and nothing stands behind it
REPLAYED = "replayed"  # it belongs to another run, or to another start of this one
TRUNCATED = "truncated"  # the end of something is gone
MOST = 200  # of one check: a wrong file has as many findings as it has rows


def amount(count: int, words: str) -> str:
    """`2 files`, `1 file`: words begin with, or have, the plural of what is counted."""
    shown = re.sub(r"s\b", "", words, count=1) if count == 1 else words
    return f"{count} {shown}"


@dataclass(frozen=True)
class Finding:
    """One thing that does not hold. where: a file of the run. record: which line, row or file in it."""

    kind: str
    where: str
    record: str
    what: str

    def line(self) -> str:
        return f"{self.kind}: {self.record} of {self.where}: {self.what}"


def of_event(kind: str, row: dict[str, Any], what: str) -> Finding:
    """About one of the events, whoever has it."""
    return Finding(kind, "events", f"event {row.get('id')}", what)


def of_run_db(kind: str, number: object, what: str) -> Finding:
    """About a row of execution_logs in run.db."""
    return Finding(kind, "run.db", f"event {number}", what)


@dataclass
class Report:
    """The result of all checks. findings: in the order of the checks, the first bad record first.

    notes: what is no breach and worth knowing. asserted: what stands in the record on the guest's word alone.
    """

    run_id: str
    chained: bool = True
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    asserted: list[str] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        return self.chained and not self.findings

    @property
    def first(self) -> Finding | None:
        return self.findings[0] if self.findings else None

    def add(self, findings: list[Finding]) -> None:
        self.findings += findings[:MOST]

    def as_dict(self) -> dict[str, Any]:
        first = asdict(self.first) if self.first else None
        return {"run_id": self.run_id, "holds": self.holds, "chained": self.chained, "first": first} | {
            "findings": [asdict(finding) for finding in self.findings],
            "notes": self.notes,
            "asserted_by_the_guest_only": self.asserted,
            "checked": self.checked,
        }
