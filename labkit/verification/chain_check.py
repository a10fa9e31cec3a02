"""HOST: does the ledger hold: the links, the sealed head, and the two files that are made from it."""

from __future__ import annotations

import json
from itertools import zip_longest
from pathlib import Path
from typing import Any

from labkit import plain_file
from labkit.gateway import chain, views
from labkit.gateway.files import parse_line, text_of
from labkit.gateway.origin import OTHER_BOOT
from labkit.verification.evidence import LEDGER, Evidence, Ledger
from labkit.verification.findings import ALTERED, FORGED, MISSING, REPLAYED, TRUNCATED, Finding


def check(evidence: Evidence) -> list[Finding]:
    ledger, made = evidence.ledger, []
    for kind, (name, line) in views.KINDS.items():
        made += _view(evidence.folder / "gateway" / name, ledger, kind, line)
    head = _head(evidence)
    # A chain written anew has every link whole: then the files made from it say which record it was.
    rest = [*made, *head] if head and head[0].kind == ALTERED else [*head, *made]
    return [*_links(ledger), *rest, *_refused(ledger)]


def lost(evidence: Evidence) -> list[Finding]:
    """Where no line of a ledger is here: what still says that there was one."""
    path = evidence.folder / LEDGER
    known = [("the manifest", evidence.manifest.get("ledger"))]
    known += [(chain.HEAD, vars(_kept_head(evidence)))]
    says = next((name for name, head in known if isinstance(head, dict) and head.get("n")), None)
    if says is None:
        return []
    if not path.is_file():
        return [Finding(MISSING, LEDGER, "the ledger", f"{says} has its head, the file is gone")]
    empty = path.stat().st_size == 0
    what = "is empty" if empty else "has no whole line"
    return [Finding(TRUNCATED, LEDGER, "the ledger", f"{says} has its head, the file {what}")]


def _links(ledger: Ledger) -> list[Finding]:
    """Walks the chain; after a break it goes on from the line it stands at."""
    found: list[Finding] = []
    number, hashed = 1, chain.GENESIS
    numbers = {record.get("n") for record in ledger.records}
    for index, (record, line) in enumerate(zip(ledger.records, ledger.lines, strict=True)):
        n = record.get("n")
        if record.get("prev") != hashed or n != number:
            kind, bad = _broken(ledger, index, number, numbers)
            found.append(_line(kind, bad, "the chain is broken here"))
        number, hashed = (n if type(n) is int else number) + 1, chain.hash_of(line)
    return found


def _broken(ledger: Ledger, index: int, number: int, numbers: set) -> tuple[str, int]:
    """(kind, line number) of the record that broke the chain at `index`, where `number` was due."""
    record = ledger.records[index]
    after = ledger.records[index + 1] if index + 1 < len(ledger.records) else {}
    n = record.get("n")
    if type(n) is int and n > number:
        return (ALTERED if number in numbers else MISSING), number
    if type(n) is int and n < number:
        return (FORGED, n) if index and ledger.records[index - 1].get("n") == n else (ALTERED, n)
    if after.get("n") == n:
        return FORGED, number
    intact = after.get("prev") == chain.hash_of(ledger.lines[index]) or not after
    return ALTERED, number - 1 if intact and number > 1 else number


def _line(kind: str, number: int, what: str) -> Finding:
    return Finding(kind, LEDGER, f"line {number}", what)


def _head(evidence: Evidence) -> list[Finding]:
    """The manifest has the head as it was when the run was collected; ledger.head, from a moment before."""
    ledger, lines = evidence.ledger, len(evidence.ledger.lines)
    sealed: Any = evidence.manifest.get("ledger")
    if not isinstance(sealed, dict) or not sealed.get("n"):
        what = "the manifest does not have the head of the ledger, which every collect writes into it"
        return [Finding(MISSING, "manifest.json", "the ledger's head", what)]
    if lines < sealed["n"]:
        return [_line(TRUNCATED, lines + 1, f"the manifest knows {sealed['n']} lines, {lines} are here")]
    if lines > sealed["n"]:
        return [_line(FORGED, sealed["n"] + 1, "it was added after the run was collected")]
    if chain.hash_of(ledger.lines[-1]) != sealed.get("sha256"):
        return [_line(ALTERED, lines, "the head is not the one in manifest.json")]
    kept = _kept_head(evidence)
    if kept.n > lines:
        return [_line(TRUNCATED, lines + 1, f"ledger.head knows {kept.n} lines, {lines} are here")]
    if kept.n and chain.hash_of(ledger.lines[kept.n - 1]) != kept.sha256:
        return [_line(ALTERED, kept.n, "ledger.head has another hash of it")]
    return []


def _kept_head(evidence: Evidence) -> chain.Head:
    folder = evidence.folder / "gateway"
    return chain.read_head(folder) if (folder / chain.HEAD).is_file() else chain.Head()


def _view(path: Path, ledger: Ledger, kind: str, line: Any) -> list[Finding]:
    where = f"gateway/{path.name}"
    wanted = [
        line(record["body"], whole)
        for record, whole in zip(ledger.records, ledger.lines, strict=True)
        if record.get("kind") == kind and isinstance(record.get("body"), dict)
    ]
    try:
        there = [text for text in plain_file.read(path).splitlines(keepends=True) if text.endswith(b"\n")]
    except OSError:
        return [Finding(MISSING, where, "the file", "it is not here")]
    for number, (due, text) in enumerate(zip_longest(wanted, there), start=1):
        if due != text and not _same(due, text):
            return [
                Finding(_difference(number - 1, wanted, there), where, f"line {number}", "the ledger differs")
            ]
    return []


def _same(due: bytes | None, text: bytes | None) -> bool:
    """Whether two lines say the same, however it is written. SHA256SUMS has what was sealed to the byte."""
    one, other = parse_line(due or b""), parse_line(text or b"")
    return bool(one and other) and text_of(one[0]) == text_of(other[0])


def _difference(index: int, wanted: list[bytes], there: list[bytes]) -> str:
    """What happened at the first place where two lists differ."""
    if index >= len(there):
        return TRUNCATED
    if index >= len(wanted) or there[index + 1 : index + 2] == wanted[index : index + 1]:
        return FORGED
    return (
        MISSING
        if there[index] == wanted[index + 1 : index + 2][0:1] or _skips(index, wanted, there)
        else ALTERED
    )


def _skips(index: int, wanted: list[bytes], there: list[bytes]) -> bool:
    return index + 1 < len(wanted) and there[index] == wanted[index + 1]


def _refused(ledger: Ledger) -> list[Finding]:
    """With the run's own token somebody pushed what belongs to another run or start: it was not taken.

    Rows of a boot that this host heard of only afterwards came again, and were.
    """
    refused = [(r.get("n"), r["body"]) for r in ledger.records if r.get("kind") == "refused"]
    later = ledger.boots.announced
    numbered = [(n, b) for n, b in refused if b.get("why") != OTHER_BOOT or b.get("boot_id") not in later]
    return [_line(REPLAYED, n, f"telemetry was refused: {json.dumps(body)[:200]}") for n, body in numbered]
