"""TESTS: each line of the ledger taken out, changed, moved, doubled; each tail cut; the chain relinked."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from test_verify_tampering import relinked

from labkit.gateway import chain

pytestmark = pytest.mark.slow


@pytest.fixture
def ledger(bench):
    return bench("gateway/ledger.jsonl")


def altered(line: bytes) -> bytes:
    return line.replace(b'"at":"2', b'"at":"3', 1)


# What is made of the lines before line n, line n and the lines behind it; the kinds that say so, and where.
CHANGES: dict[str, tuple[Callable, set[str], set[int]]] = {
    "taken out": (lambda before, line, after: [*before, *after], {"missing"}, {0}),
    "altered": (lambda before, line, after: [*before, altered(line), *after], {"altered"}, {0}),
    "swapped": (lambda before, line, after: [*before, *after[:1], line, *after[1:]], {"altered"}, {0}),
    "doubled": (lambda before, line, after: [*before, line, altered(line), *after], {"forged"}, {0, 1}),
    "tail cut": (lambda before, line, after: before, {"truncated"}, set()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_line_of_the_ledger(ledger, change):
    make, kinds, places = CHANGES[change]
    lines = ledger.copy.lines("ledger.jsonl")
    assert len(lines) > 120
    for n in range(1, len(lines) + (change != "swapped")):
        told = make(lines[: n - 1], lines[n - 1], lines[n:])
        kind, record = ledger.first(lambda told=told: ledger.copy.put("ledger.jsonl", told))
        is_tail = told == lines[: n - 1]
        assert kind in ({"truncated"} if is_tail else kinds), (n, kind, record)
        assert is_tail or record in {f"line {n + by}" for by in places}, (n, kind, record)


def test_each_line_of_the_ledger_with_the_chain_made_whole_again(ledger):
    """The forger relinks the lines; the head in the manifest, or what was made from the ledger, tells."""
    copy = ledger.copy
    records = copy.records()
    for n in range(1, len(records) + 1):
        rest = [*records[: n - 1], *records[n:]]
        kind, _ = ledger.first(lambda rest=rest: copy.put("ledger.jsonl", relinked(rest)))
        assert kind in ("truncated", "missing", "altered"), (n, kind)
        assert chain.end_of(copy.folder / "gateway").n == len(records) - 1


def test_an_untouched_ledger_is_accused_of_nothing(ledger):
    assert ledger.first(lambda: None) == ("", "")
