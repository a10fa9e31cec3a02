"""HOST: compares run.db with the events in the ledger, and the mirror with run.db, row by row."""

from __future__ import annotations

import json
import re
import time
from calendar import timegm
from collections import Counter

from labkit.verification.evidence import Database, Evidence, Ledger, Row, content, told_nonce
from labkit.verification.findings import ALTERED, FORGED, MISSING, REPLAYED, TRUNCATED, Finding, amount

RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")  # a folder with another kind of name is somebody's copy
CLOCK_SECONDS = 120  # the guest's clock may be that far off, or step back
TABLES = ("execution_logs", "file_registry", "api_requests", "prompts", "workspace_files", "session_state")
KEYS = {"prompts": "name", "workspace_files": "path", "session_state": "key"}


def check(evidence: Evidence) -> list[Finding]:
    if found := _other_run(evidence):
        return found  # every row would differ
    if found := _twice(evidence):
        return found  # it can't be told which of them to compare
    found = [*_rows(evidence), *_holes(evidence), *_conflicts(evidence)]
    return [*found, *_clock(evidence), *_begun(evidence), *_behind_the_seal(evidence), *_mirror(evidence)]


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
                found.append(_event(TRUNCATED, number, f"the ledger goes on to event {last_held}"))
            break
        if number not in held and number > last_held and not evidence.ledger.sealed:
            break  # the gateway was gone before they came: the guest's word, and said so
        if kind := _kind(number, held, told):
            found.append(_event(kind, number, _WHY[kind]))
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


def _event(kind: str, number: int, what: str) -> Finding:
    return Finding(kind, "run.db", f"event {number}", what)


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


def _clock(evidence: Evidence) -> list[Finding]:
    """The guest's time never steps back by minutes, and is never ahead of when this host heard the row.

    Unless this host's own clock was set back meanwhile, as its ledger shows: the guest's follows it or not.
    """
    latest, own = 0, _host_set_back(evidence.ledger)
    for number in sorted(evidence.ledger.events):
        told = _seconds(evidence.ledger.events[number].get("timestamp"), "%Y-%m-%d %H:%M:%S")
        heard = _seconds(evidence.ledger.heard_at.get(number), "%Y-%m-%dT%H:%M:%SZ")
        if told is None:
            return [_event(ALTERED, number, "its time is none")]
        if heard is None:
            continue
        allowed = CLOCK_SECONDS + own.get(number, 0)
        if told < latest - allowed or told > heard + allowed:
            what = "its clock was set back" if told < latest else "it is dated after this host heard it"
            return [_event(ALTERED, number, what)]
        latest = max(latest, told)
    return []


def _host_set_back(ledger: Ledger) -> dict[int, int]:
    """Seconds by which the times of the ledger's lines stepped back before each event."""
    back, before, found = 0, 0, {}
    for record in ledger.records:
        at = _seconds(record.get("at"), "%Y-%m-%dT%H:%M:%SZ")
        if at is None:
            continue
        back, before = back + max(0, before - at), at
        body = record.get("body")
        if back and record.get("kind") == "event" and isinstance(body, dict) and type(body.get("id")) is int:
            found.setdefault(body["id"], back)
    return found


def _begun(evidence: Evidence) -> list[Finding]:
    """RUN_STARTED says what this host gave the run, before its first step (twice after an early crash)."""
    given, found, working, begun = evidence.settings, [], False, not evidence.ledger.nonce
    for row in evidence.told:
        working = working or row.get("event_type") == "WORKER_THOUGHT"
        begun = begun or row.get("event_type") == "RUN_STARTED"
        if working and not begun:
            return [_event(MISSING, row["id"], "no RUN_STARTED of this start stands before it")]
        if row.get("event_type") != "RUN_STARTED":
            continue
        if working:
            found.append(_event(FORGED, row["id"], "the run had begun long before"))
        elif odd := _odd_settings(row, given):
            found.append(_event(ALTERED, row["id"], f"this host gave the run another {', '.join(odd)}"))
    return found


def _odd_settings(row: Row, given: dict) -> list[str]:
    try:
        told = json.loads(row.get("sanitized_output") or "")
    except (ValueError, RecursionError):
        return []
    told = told if isinstance(told, dict) else {}
    odd = [
        name
        for name in ("minutes", "budget_usd")
        if name in given and told.get(name, given[name]) != given[name]
    ]
    models = given.get("models") or []
    return odd + [
        name for name in ("model", "inspector_model") if models and told.get(name, models[0]) not in models
    ]


def _behind_the_seal(evidence: Evidence) -> list[Finding]:
    """RUN_SEALED is the last that a harness records."""
    held = evidence.ledger.events
    sealed = min((n for n, row in held.items() if row.get("event_type") == "RUN_SEALED"), default=None)
    last = max(held, default=0)
    if sealed is None or last <= sealed:
        return []
    return [_event(FORGED, min(n for n in held if n > sealed), f"event {sealed} sealed the run")]


def _seconds(text: object, form: str) -> int | None:
    try:
        return timegm(time.strptime(str(text), form))
    except ValueError:
        return None


def _mirror(evidence: Evidence) -> list[Finding]:
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
