"""HOST: the system prompts in the record are those that were sent. Owns which purpose of a call has which."""

from __future__ import annotations

from labkit.gateway.views import SEEN
from labkit.gateway.witness import fingerprint
from labkit.verification.evidence import Evidence, Row
from labkit.verification.findings import ALTERED, MISSING, Finding

PROMPTS = {"worker": "worker", "report": "worker", "inspector": "inspector", "digest": "digest"}


def check(evidence: Evidence, exchanges: list[Row]) -> list[Finding]:
    """exchanges: those of which the relay kept hashes."""
    if evidence.rebuilt or not evidence.run.rows("prompts"):
        return []
    stored = {row.get("name"): fingerprint(str(row.get("content"))) for row in evidence.run.rows("prompts")}
    wrong: dict[str, int] = {}
    for row in exchanges:
        name = PROMPTS.get(row.get("purpose"), "")
        first = (row[SEEN].get("messages") or [""])[0].split(",")[0]
        if name and first != f"s:{stored.get(name)}":
            wrong.setdefault(name, row["id"])
    return [
        Finding(
            ALTERED if name in stored else MISSING,
            "run.db",
            f"prompts {name}",
            f"exchange {number} has another",
        )
        for name, number in wrong.items()
    ]
