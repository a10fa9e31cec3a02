"""HOST: compares the commands in the record with those handed out, and these with what was asked.

A command is in the ledger before the guest is told of it, so a COMMAND event without one was made up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from labkit.gateway import commands
from labkit.gateway.files import read_lines
from labkit.gateway.witness import normal
from labkit.verification.evidence import Evidence, Row
from labkit.verification.findings import ALTERED, FORGED, MISSING, Finding, of_event

ASKED = f"gateway/{commands.FILE_NAME}"


def check(evidence: Evidence) -> list[Finding]:
    asked = _asked(evidence)
    handed = _handed(evidence) or asked  # a kit before that noted them in commands.jsonl only
    return [*_recorded(evidence, handed), *_silent(evidence, handed), *_kept(handed, asked)]


def _handed(evidence: Evidence) -> dict[int, Row]:
    bodies = (r.get("body") for r in evidence.ledger.records if r.get("kind") == "command")
    return {body["id"]: body for body in bodies if isinstance(body, dict) and type(body.get("id")) is int}


def _asked(evidence: Evidence) -> dict[int, Row]:
    return {item["id"]: item for item in commands.after(evidence.folder / "gateway", 0)}


def _told(evidence: Evidence, handed: dict[int, Row]) -> Iterator[tuple[Row, str, int]]:
    """Each COMMAND event, its line cleaned, and the number of the command it is or says it is; 0: none."""
    lines = {_line(item): number for number, item in handed.items()}  # cleaned, one may be no JSON any more
    for row in evidence.told:
        if row.get("event_type") == "COMMAND":
            line = str(row.get("command_or_input") or "")
            yield row, normal(line), lines.get(normal(line)) or _number(line)


def _recorded(evidence: Evidence, handed: dict[int, Row]) -> list[Finding]:
    """Each COMMAND event is one that was handed out, word for word, once, in order."""
    found, last = [], 0
    for row, line, number in _told(evidence, handed):
        if number not in handed:
            found.append(of_event(FORGED, row, "nobody gave this command"))
        elif line != _line(handed[number]):
            found.append(of_event(ALTERED, row, f"command {number} said something else"))
        elif number <= last:
            found.append(
                of_event(FORGED, row, f"command {number} stands in the record already, or came too late")
            )
        last = max(last, number)
    return found


def _silent(evidence: Evidence, handed: dict[int, Row]) -> list[Finding]:
    """The guest acknowledges what stands in its record. Off dead disks an unsealed one may lack its end."""
    if evidence.from_disks and evidence.sealed_summary is None:
        return []
    told = {number for _, _, number in _told(evidence, handed)}
    states = read_lines(evidence.folder / "gateway" / commands.STATE_NAME)
    known = {item.get("id") for item in states if item.get("state") == "acknowledged"}
    what = "the guest acknowledged it, and its record does not have it"
    return [Finding(MISSING, "events", f"command {n}", what) for n in sorted(handed.keys() & known - told)]


def _kept(handed: dict[int, Row], asked: dict[int, Row]) -> list[Finding]:
    """commands.jsonl says of each that was handed out what the ledger says."""
    found = []
    for number, item in sorted(handed.items()):
        if number not in asked:
            found.append(Finding(MISSING, ASKED, f"command {number}", "the ledger has it"))
        elif _line(asked[number]) != _line(item):
            found.append(Finding(ALTERED, ASKED, f"command {number}", "the ledger differs"))
    return found


def _line(item: Row) -> str:
    """As the harness records it."""
    return normal(
        json.dumps({name: item[name] for name in commands.TOLD if name in item}, ensure_ascii=False)
    )


def _number(line: str) -> int:
    try:
        value: Any = json.loads(line)["id"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return 0
    return value if type(value) is int else 0
