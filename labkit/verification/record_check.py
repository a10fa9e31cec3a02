"""HOST: compares run.db with the events in the ledger, row by row; then has session and mirror looked at.

Both only make sense of the right run, with one row under each id.
"""

from __future__ import annotations

import re
from collections import Counter

from labkit.verification import boot_check, mirror_check, session_check
from labkit.verification.evidence import KEYS, TABLES, Evidence, Row, content, told_nonce
from labkit.verification.findings import ALTERED, FORGED, MISSING, REPLAYED, TRUNCATED, Finding, of_run_db

RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")  # a folder with another kind of name is somebody's copy


def check(evidence: Evidence) -> list[Finding]:
    if found := _other_run(evidence):
        return found  # every row would differ
    if found := _twice(evidence):
        return found  # it can't be told which of them to compare
    found = [*_rows(evidence), *_holes(evidence), *_conflicts(evidence)]
    found += [*session_check.check(evidence), *boot_check.check(evidence)]
    return [*found, *mirror_check.check(evidence)]


def _other_run(evidence: Evidence) -> list[Finding]:
    ledger, name = evidence.ledger, str(evidence.manifest.get("run_id") or evidence.folder.name)
    told = evidence.run.state.get("run_id")
    nonce = told_nonce(list(evidence.run.events.values()))
    if ledger.run_id and ledger.run_id != name:
        return [
            Finding(REPLAYED, "gateway/ledger.jsonl", "line 1", f"it is of run {ledger.run_id}, not {name}")
        ]
    if told and told != name:
        return [Finding(REPLAYED, "run.db", "session_state", f"it is of run {told}, not {name}")]
    if RUN_ID.fullmatch(evidence.folder.name) and evidence.folder.name != name:
        return [Finding(REPLAYED, "manifest.json", "run_id", f"it is of run {name}, not of its folder's")]
    if ledger.nonce and nonce and nonce != ledger.nonce:
        return [Finding(REPLAYED, "run.db", "RUN_STARTED", "it is of another start of this run")]
    if evidence.says_rebuilt and not evidence.made_by_host:
        what = "only this host makes a record out of events, and its manifest says that it did not"
        return [Finding(FORGED, "run.db", "session_state rebuilt_from", what)]
    return []


def _twice(evidence: Evidence) -> list[Finding]:
    """The schema lets no two rows have one id: a table that was made anew may."""
    found = []
    for name, database in (("run.db", evidence.run), ("mirror.db", evidence.mirror)):
        for table in TABLES:
            keys = [row.get(KEYS.get(table, "id")) for row in database.rows(table)]
            again = next((key for key, count in Counter(keys).items() if count > 1 or key is None), "")
            if again != "":
                found.append(
                    Finding(FORGED, name, f"{table} {again}", "two rows have this id, or one has none")
                )
    return found


def _rows(evidence: Evidence) -> list[Finding]:
    """By id. An unsealed run off the disks of a dead guest may lack the end, and is said to."""
    if evidence.run.problem:
        return [Finding(MISSING, "run.db", "the database", evidence.run.problem)]
    held, told = evidence.ledger.events, evidence.run.events
    last_held, last_told = max(held, default=0), max(told, default=0)
    found = []
    for number in sorted(held.keys() | told.keys()):
        if number not in told and number > last_told:
            if evidence.ledger.sealed or not evidence.from_disks:
                found.append(of_run_db(TRUNCATED, number, f"the ledger goes on to event {last_held}"))
            break
        if number not in held and number > last_held and not evidence.ledger.sealed:
            break  # the gateway was gone before they came: the guest's word, and said so
        if kind := _kind(number, held, told):
            found.append(of_run_db(kind, number, _WHY[kind]))
            if kind != ALTERED:  # ids that moved make every row behind differ
                break
    return found


_WHY = {
    MISSING: "the ledger has it",
    ALTERED: "the ledger has it with other content",
    FORGED: "the ledger does not have it",
}


def _kind(number: int, held: dict[int, Row], told: dict[int, Row]) -> str:
    if number not in told:
        return MISSING
    if number not in held:
        return FORGED
    here = content(told[number])
    if here == content(held[number]):
        return ""
    if _swapped(number, held, told):
        return ALTERED
    if number + 1 in held and here == content(held[number + 1]) and _moved(number, 1, held, told):
        return MISSING  # it was cut out and the ids behind it closed up
    if number + 1 in told and content(told[number + 1]) == content(held[number]):
        return FORGED if _moved(number + 1, -1, held, told) else ALTERED
    return ALTERED


def _swapped(number: int, held: dict[int, Row], told: dict[int, Row]) -> bool:
    """Whether this row and the next changed places, and the one behind them is where it was."""
    places = ((number, number + 1), (number + 1, number), (number + 2, number + 2))
    return all(content(told.get(here, {})) == content(held.get(there, {})) for here, there in places)


def _moved(number: int, by: int, held: dict[int, Row], told: dict[int, Row]) -> bool:
    """Whether the rows behind moved as well: two rows that changed places did not."""
    last = max(told)
    return all(
        content(told[n]) == content(held.get(n + by, {}))
        for n in range(number, min(last, number + 2) + 1)
        if n in told
    )


def _holes(evidence: Evidence) -> list[Finding]:
    """Ids are given out one by one: a hole is a row that is gone."""
    found = []
    held = evidence.ledger.events
    for number in range(1, max(held, default=0)):
        if number not in held:
            found.append(
                Finding(MISSING, "gateway/ledger.jsonl", f"event {number}", "the guest never pushed it")
            )
    for table in ("file_registry", "api_requests"):
        ids = {row.get("id") for row in evidence.run.rows(table)}
        last = max((number for number in ids if type(number) is int), default=0)
        gone = [number for number in range(1, last) if number not in ids]
        found += [Finding(MISSING, "run.db", f"{table} {number}", "its id is skipped") for number in gone]
    return found


def _conflicts(evidence: Evidence) -> list[Finding]:
    what = "it was pushed a second time with other content; the first was kept"
    return [
        Finding(FORGED, "gateway/ledger.jsonl", f"event {row.get('id')}", what)
        for row in evidence.ledger.conflicts
    ]
