"""HOST: compares the mirror with run.db, table by table: the same rows under the same ids."""

from __future__ import annotations

from labkit.verification.evidence import KEYS, TABLES, Database, Evidence
from labkit.verification.findings import ALTERED, FORGED, MISSING, TRUNCATED, Finding, amount


def check(evidence: Evidence) -> list[Finding]:
    sealed = evidence.sealed_summary
    if evidence.rebuilt or evidence.manifest.get("collected") == "events":
        return []
    states = [str(summary.get("mirror")) for summary in (sealed or {}, evidence.summary)]
    whole = sealed is not None and states == ["ok", "ok"]
    if evidence.mirror.problem:
        return [Finding(MISSING, "mirror.db", "the database", evidence.mirror.problem)] if whole else []
    found = []
    for table in TABLES:
        if table != "session_state" or whole:
            found += _lacking(table, evidence) or _table(table, evidence.run, evidence.mirror, whole)
    return found


def _lacking(table: str, evidence: Evidence) -> list[Finding]:
    """Rows that run.db lost. An event that the ledger does not have either was put into the mirror."""
    key = KEYS.get(table, "id")
    ours = {row.get(key) for row in evidence.run.rows(table)}
    gone = [row.get(key) for row in evidence.mirror.rows(table) if row.get(key) not in ours]
    if table == "execution_logs":
        gone = [number for number in gone if number in evidence.ledger.events]
    if not gone:
        return []
    what = f"run.db lacks {amount(len(gone), 'rows')} of {table} that mirror.db has"
    return [Finding(MISSING, "run.db", f"{table} {gone[0]}", what)]


def _table(table: str, run: Database, mirror: Database, whole: bool) -> list[Finding]:
    key = KEYS.get(table, "id")
    ours = {row.get(key): row for row in run.rows(table)}
    theirs = {row.get(key): row for row in mirror.rows(table)}
    last = max((n for n in theirs if type(n) is int), default=0)
    for name in sorted(ours.keys() | theirs.keys(), key=lambda value: (isinstance(value, str), value)):
        record = f"{table} {name}"
        if name not in ours:
            return [Finding(FORGED, "mirror.db", record, "run.db does not have it")]
        if name not in theirs:
            if not whole:
                continue
            kind = TRUNCATED if type(name) is int and name > last else MISSING
            return [Finding(kind, "mirror.db", record, "run.db has it")]
        if ours[name] != theirs[name] and (whole or key == "id"):
            return [Finding(ALTERED, "mirror.db", record, "run.db has it with other content")]
    return []
