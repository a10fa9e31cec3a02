"""HOST: whether the events are one session's: begun as this host began it, in its time, sealed last."""

from __future__ import annotations

import json
import time
from calendar import timegm

from labkit.verification.evidence import Evidence, Ledger, Row
from labkit.verification.findings import ALTERED, FORGED, MISSING, Finding, of_run_db

CLOCK_SECONDS = 120  # the guest's clock may be that far off, or step back


def check(evidence: Evidence) -> list[Finding]:
    return [*_clock(evidence), *_begun(evidence), *_behind_the_seal(evidence)]


def _clock(evidence: Evidence) -> list[Finding]:
    """The guest's time never steps back by minutes, and is never ahead of when this host heard the row.

    Unless this host's own clock was set back meanwhile, as its ledger shows: the guest's follows it or not.
    """
    latest, own = 0, _host_set_back(evidence.ledger)
    for number in sorted(evidence.ledger.events):
        told = _seconds(evidence.ledger.events[number].get("timestamp"), "%Y-%m-%d %H:%M:%S")
        heard = _seconds(evidence.ledger.heard_at.get(number), "%Y-%m-%dT%H:%M:%SZ")
        if told is None:
            return [of_run_db(ALTERED, number, "its time is none")]
        if heard is None:
            continue
        allowed = CLOCK_SECONDS + own.get(number, 0)
        if told < latest - allowed or told > heard + allowed:
            what = "its clock was set back" if told < latest else "it is dated after this host heard it"
            return [of_run_db(ALTERED, number, what)]
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
            return [of_run_db(MISSING, row["id"], "no RUN_STARTED of this start stands before it")]
        if row.get("event_type") != "RUN_STARTED":
            continue
        if working:
            found.append(of_run_db(FORGED, row["id"], "the run had begun long before"))
        elif odd := _odd_settings(row, given):
            found.append(of_run_db(ALTERED, row["id"], f"this host gave the run another {', '.join(odd)}"))
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
    behind = [n for n in held if sealed is not None and n > sealed]
    return [of_run_db(FORGED, min(behind), f"event {sealed} sealed the run")] if behind else []


def _seconds(text: object, form: str) -> int | None:
    try:
        return timegm(time.strptime(str(text), form))
    except ValueError:
        return None
