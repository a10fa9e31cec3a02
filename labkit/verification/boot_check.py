"""HOST: each RUN_STARTED and RESUMED names a boot of the guest that this host had announced by then.

Root in the guest can read and tell the boot's name: what is found is an older state of the machine that went
on under the same run, or a machine that was booted behind this host's back.
"""

from __future__ import annotations

from labkit.gateway.origin import TOLD_BY, Boots, boot_of
from labkit.verification.evidence import Evidence
from labkit.verification.findings import REPLAYED, Finding, of_run_db

UNSEEN = "it is of a boot of the guest that this host had not announced"
BACK = "it is of a boot of the guest before the one that the run had reached"


def check(evidence: Evidence) -> list[Finding]:
    boots = evidence.ledger.boots
    if not boots.known:
        return []
    early, found, reached = _too_early(evidence), [], 0
    for row in evidence.told:
        if row.get("event_type") not in TOLD_BY:
            continue
        if row["id"] in early or boots.foreign(row):
            found.append(of_run_db(REPLAYED, row["id"], UNSEEN))
            continue
        place = boots.announced.index(boot_of(row))
        if place < reached:
            found.append(of_run_db(REPLAYED, row["id"], BACK))
        reached = max(place, reached)
    return found


def _too_early(evidence: Evidence) -> set[object]:
    """Events that the ledger has before the boot that they name."""
    boots, early = Boots(), set[object]()
    for record in evidence.ledger.records:
        body = record.get("body")
        if not isinstance(body, dict):
            continue
        if record.get("kind") in ("opened", "started"):
            boots.announce(body)
        elif record.get("kind") == "event" and boots.foreign(body):
            early.add(body.get("id"))
    return early
