"""HOST: all checks of a collected run, in order: ledger, record, model calls, commands, bill, files, sums."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from labkit import plain_file, sums
from labkit.analysis.text import one_line
from labkit.errors import USAGE, LabError
from labkit.verification import (
    bill_check,
    call_check,
    chain_check,
    command_check,
    evidence,
    file_check,
    record_check,
)
from labkit.verification.evidence import Evidence
from labkit.verification.findings import ALTERED, FORGED, Finding, Report, amount

ON_ITS_WORD = (
    "phases, active seconds, nudges, guards, backups and digests: no other party saw them",
    "guard_status of a result, and the Inspector's reasons and subjects: the host has its verdicts only",
    "what a command really did: the host sees what the model asked for and what it was told",
    "session_state (but its summary), workspace_files, file_registry and the details of api_requests",
    "contents of notes, scripts, backup, outputs and console.log: no line of the ledger covers them, and the"
    " hashes in workspace_files are the guest's as well",
)
UNKNOWN_BOOT = "this host did not know the guest's boot: only the nonce tells this start from another"
ON_THE_SUMS = (
    "whoever can write the whole folder can make SHA256SUMS anew: compare its own sum with one kept elsewhere"
)


def examine(folder: Path) -> Report:
    """Check a run's folder. Never raises for what is in it."""
    found = evidence.read(Path(folder))
    report = Report(str(found.manifest.get("run_id") or Path(folder).name))
    report.chained = bool(found.ledger.lines)
    what = f"{plain_file.WHY}, and was not read"
    report.add([Finding(FORGED, name, "the file", what) for name in plain_file.odd_ones(found.folder)])
    if not report.chained:
        _tried("gateway/ledger.jsonl", report, lambda: report.add(chain_check.lost(found)))
    else:
        _tried("gateway/ledger.jsonl", report, lambda: _against_the_ledger(found, report))
    _tried("run.db", report, lambda: report.add(file_check.check(found)))
    findings, notes = file_check.check_sums(found.folder)
    report.add(findings)
    report.notes += notes
    report.checked |= {"files": sum(1 for path in found.folder.rglob("*") if path.is_file())}
    return report


def refuse_a_simulation(folder: Path) -> None:
    """Raises LabError (USAGE) for what `lab simulate --keep` left: no file of a collect, its kind of id."""
    if any((folder / name).exists() for name in ("gateway", "manifest.json", sums.NAME)):
        return
    if str(evidence.read(folder).run.state.get("run_id")).startswith("simulated-"):
        raise LabError(
            f"{folder} is a simulation: it has no ledger of a host, so there is nothing to verify it against",
            f"`lab query --run {folder}{os.sep} event_types` reads it",
            USAGE,
        )


def _tried(where: str, report: Report, check: Callable[[], None]) -> None:
    """What a check cannot even read the kit did not write: it does not hold, and the other checks go on."""
    try:
        check()
    except Exception as error:
        what = f"something in it is of no kind that the kit writes: {type(error).__name__}: {error}"[:300]
        report.add([Finding(ALTERED, where, "a record", what)])


def text(report: Report) -> str:
    """The report for a person: verdict first, then the first bad record, then what to know."""
    lines = [_verdict(report)]
    if report.first:
        lines += [f"the first bad record: {report.first.line()}"]
        lines += [f"  also {finding.line()}" for finding in report.findings[1:6]]
        lines += [f"  and {len(report.findings) - 6} more (--json lists them)"] * (len(report.findings) > 6)
    counts = ", ".join(amount(count, name) for name, count in report.checked.items())
    lines += [f"compared: {counts}", *(f"note: {note}" for note in report.notes)]
    lines += [f"on the guest's word alone: {what}" for what in report.asserted]
    return "\n".join(map(one_line, lines))


def _wrong(count: int) -> str:
    return "1 record is wrong" if count == 1 else f"{count} records are wrong"


def _verdict(report: Report) -> str:
    if report.holds:
        return f"run {report.run_id} holds: the record is whole, and what the host saw agrees with it"
    if report.findings:
        return f"run {report.run_id} does not hold: {_wrong(len(report.findings))}"
    return (
        f"run {report.run_id} can't be verified: the kit that collected it kept no chain of what the host "
        "saw; its files are as they were collected"
    )


def _against_the_ledger(found: Evidence, report: Report) -> None:
    report.add(chain_check.check(found))
    report.add(record_check.check(found))
    calls = call_check.check(found)
    report.add(calls.findings)
    report.add(command_check.check(found))
    bill, unnamed = bill_check.check(found)
    report.add(bill)
    ledger, told = found.ledger, found.run.events
    report.checked |= {
        "ledger lines": len(ledger.lines),
        "events": len(told),
        "model calls": len(ledger.exchanges),
    }
    report.checked |= {"tool calls": calls.matched, "results shown again": calls.seen_again}
    report.asserted += [*ON_ITS_WORD, *filter(None, (calls.silent, unnamed))]
    report.notes.append(ON_THE_SUMS)
    last = max(ledger.events, default=0)
    ahead, behind = (
        sum(number > last for number in told),
        sum(n > max(told, default=0) for n in ledger.events),
    )
    if ahead and not ledger.sealed:
        report.asserted.append(
            f"{amount(ahead, 'events')} behind event {last}: they had not reached the gateway"
        )
    if calls.last:
        report.asserted.append(f"{amount(calls.last, 'results')} of the last step: no prompt followed")
    if calls.excused:
        report.asserted.append(
            f"{amount(calls.excused, 'results')} of steps that it says a restart or a failure cut off"
        )
    if behind and found.from_disks:
        report.notes.append(f"in the ledger only, lost with the guest's disks: {amount(behind, 'events')}")
    if ledger.adopted:
        report.notes.append(
            f"older than the chain: {amount(ledger.adopted, 'records')}; a kit without one began the run"
        )
    if not ledger.boots.known:
        report.notes.append(UNKNOWN_BOOT)
    if found.sealed_summary is None:
        report.notes.append("the run was not sealed")
