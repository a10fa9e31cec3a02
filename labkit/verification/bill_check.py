"""HOST: compares the guest's own account of its model calls (api_requests) with the relay's exchanges."""

from __future__ import annotations

from collections import Counter

from labkit.verification import excuses
from labkit.verification.evidence import LEDGER, Evidence, Row
from labkit.verification.findings import ALTERED, FORGED, MISSING, Finding

ROUNDING_USD = 0.01
BILLED = 2  # its place in a key
OK = 200
ESTIMATE_USD = 1e-8  # charged_usd has nine places
FIGURES = ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens")


def check(evidence: Evidence) -> tuple[list[Finding], str]:
    """The provider's bill against the ledger, then the ledger against the guest's account.

    With a sentence about calls that are excused ('' for none).
    """
    found, excused = _accounted(evidence)
    return [*_billed(evidence), *found], excused


def _billed(evidence: Evidence) -> list[Finding]:
    """Where the run had its own key the provider said what it billed on it: never more than was charged."""
    notes = (record.get("body") for record in evidence.ledger.records if record.get("kind") == "bill")
    bills = (note.get("usd") for note in notes if isinstance(note, dict))
    billed = sum(usd for usd in bills if isinstance(usd, int | float))
    charged = sum(row.get("charged_usd") or 0.0 for row in evidence.ledger.exchanges)
    if billed <= charged + ROUNDING_USD:
        return []
    what = f"the provider billed ${billed:.4f}, the ledger has calls for ${charged:.4f}"
    return [Finding(MISSING, LEDGER, "an exchange", what)]


def _accounted(evidence: Evidence) -> tuple[list[Finding], str]:
    """Empty where the record has no account (made from events), or the relay saw no call."""
    if evidence.rebuilt or evidence.run.problem or not evidence.ledger.exchanges:
        return [], ""
    rows, answered = evidence.run.rows("api_requests"), _answered(evidence)
    left = Counter(_key(row) for row in answered)
    charged = {_key(row): row.get("charged_usd") for row in answered}
    found = []
    for row in rows:
        key = next((key for key in _keys(row) if left[key] > 0 and _is_priced(row, key, charged[key])), None)
        if key is not None:
            left[key] -= 1
        elif row.get("status") == "ok":
            known = any(count > 0 and key[0] == row.get("purpose") for key, count in left.items())
            what = "no exchange that the relay saw has these figures"
            found.append(
                Finding(ALTERED if known else FORGED, "run.db", f"api_requests {row.get('id')}", what)
            )
    return (found, "") if found else _unaccounted(evidence, answered, left)


def _keys(row: Row) -> list[tuple]:
    """What the exchange may look like of which the guest's row tells. An earlier kit did not say which."""
    billed, estimated = _key(row), _key({**row, "cost_usd": None})
    told = {None: [billed, estimated], "billed": [billed], "price table": [estimated]}
    return told.get(row.get("cost_source"), [])


def _is_priced(row: Row, key: tuple, charged: object) -> bool:
    """Where nobody billed: both sides reckon with the same tokens and prices."""
    cost = row.get("cost_usd")
    if key[BILLED] is not None:
        return True
    if cost is None:  # then nothing can be reckoned
        return row.get("prompt_tokens") is None or row.get("completion_tokens") is None
    numbers = isinstance(cost, int | float) and isinstance(charged, int | float)
    return numbers and abs(cost - charged) <= ESTIMATE_USD


def _answered(evidence: Evidence) -> list[Row]:
    """By a provider that told what it used, or by one that never does."""
    exchanges = evidence.ledger.exchanges
    return [row for row in exchanges if row.get("prompt_tokens") is not None or row.get("status") == OK]


def _key(row: Row) -> tuple:
    cost = row.get("cost_usd")
    billed = None if cost is None else round(float(cost), 9) if isinstance(cost, int | float) else str(cost)
    return row.get("purpose"), row.get("model"), billed, *(row.get(name) for name in FIGURES)


def _unaccounted(evidence: Evidence, answered: list[Row], left: Counter) -> tuple[list[Finding], str]:
    """Answered calls that the guest does not name: one for each crash, interruption or failed attempt."""
    spare = [row for row in answered if left[_key(row)] > 0]
    sealed = evidence.sealed_summary
    ended = sealed is None or sealed.get("stop_reason") == "finished by a person"
    excused = excuses.of(evidence, "", ended)
    if len(spare) <= excused.total:
        return [], excused.line(len(spare), "calls that api_requests does not have")
    where = f"exchange {spare[0].get('id')}"
    return [Finding(MISSING, LEDGER, where, "api_requests of run.db does not have this call")], ""
