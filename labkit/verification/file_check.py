"""HOST: compares the registry, the inventory and the summary with the files, and all with SHA256SUMS."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

from labkit import plain_file, sums
from labkit.errors import LabError
from labkit.verification.evidence import TABLES, Evidence
from labkit.verification.findings import ALTERED, FORGED, MISSING, TRUNCATED, Finding, amount

COUNTS = {"notes": "SCRATCHPAD", "scripts": "SCRIPT", "masters": "MASTER_SUMMARY"}
MADE_LATER = ("sha256", "mirror")  # summary.json has them as they were after RUN_SEALED
MONEY = ("prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd")
WORDS = {
    "digest_refreshes": "DIGEST_REFRESH",
    "nudges": "SYSTEM_NUDGE",
    "inspector_reviews": "INSPECTOR_DECISION",
}
ROUNDING = 2e-6  # cost_usd has six places
CHUNK = 1 << 20
COLLECTED = ("workspace", "backup", "outputs", "gateway", "not-the-record")  # nothing comes there later


def check(evidence: Evidence) -> list[Finding]:
    return [
        *_schema(evidence),
        *_summary(evidence),
        *_counts(evidence),
        *_registry(evidence),
        *_inventory(evidence),
        *_sealed(evidence),
    ]


def _schema(evidence: Evidence) -> list[Finding]:
    """The kit's own schema has tables and nothing else: what stands beside them somebody put there."""
    databases = (("run.db", evidence.run), ("mirror.db", evidence.mirror))
    what = "no schema of the kit has it"
    return [
        Finding(FORGED, where, f"the {kind} {name}", what)
        for where, database in databases
        for kind, name in database.objects
        if kind != "table" or name not in TABLES
    ]


def check_sums(folder: Path) -> tuple[list[Finding], list[str]]:
    """(findings, notes): every file against SHA256SUMS."""
    try:
        listed, problems = sums.read(folder), sums.verify_sums(folder).problems
    except LabError as error:
        return [Finding(MISSING, sums.NAME, "the list", error.message)], []
    if not listed:
        return [Finding(TRUNCATED, sums.NAME, "the list", "it is empty")], []
    later = [one.path for one in problems if one.kind == "unlisted" and _may_come_later(one.path, listed)]
    findings = [_sum(problem) for problem in problems if problem.path not in later]
    what = "every collect lists it, and this list does not"
    left_out = [name for name in sums.ALWAYS_LISTED if name not in listed]
    findings[:0] = [Finding(MISSING, sums.NAME, name, what) for name in left_out]
    came = f"{amount(len(later), 'files')} came after the run was collected: {', '.join(later[:3])}"
    return findings, [came] * bool(later)


def _sum(problem: sums.Problem) -> Finding:
    if problem.kind == "unlisted":
        return Finding(FORGED, sums.NAME, problem.path, "the file is here, and the list does not have it")
    kind = MISSING if problem.kind == "missing" else ALTERED
    return Finding(kind, sums.NAME, problem.path, f"the file is {problem.kind}")


def _may_come_later(path: str, listed: dict[str, str]) -> bool:
    """A file of the user's at the top, or what SQLite leaves beside a database that somebody opened."""
    beside = path.removesuffix("-wal").removesuffix("-shm")
    if path in sums.ALWAYS_LISTED:
        return True  # named already as left out of the list
    return path.split("/")[0] not in COLLECTED or (beside != path and beside in listed)


def _summary(evidence: Evidence) -> list[Finding]:
    told = evidence.sealed_summary
    if told is None or evidence.ledger.sealed is False:
        return []
    if not evidence.summary:
        return [
            Finding(MISSING, "summary.json", "the file", "it is not here, no JSON object, or far too long")
        ]
    for where, summary in (("summary.json", evidence.summary), ("run.db", _stored(evidence))):
        names = (told.keys() | summary.keys()) - set(MADE_LATER) if summary is not None else ()
        for name in sorted(names):
            if told.get(name) != summary.get(name):
                record = name if where == "summary.json" else f"session_state summary, {name}"
                return [Finding(ALTERED, where, record, "RUN_SEALED has another value")]
    return []


def _stored(evidence: Evidence) -> dict | None:
    """The summary in session_state; None where there is none."""
    if "summary" not in evidence.run.state:
        return None
    try:
        stored = json.loads(evidence.run.state.get("summary") or "")
    except (ValueError, TypeError, RecursionError):
        return {}
    return stored if isinstance(stored, dict) else {}


def _counts(evidence: Evidence) -> list[Finding]:
    """The seal, which the ledger holds, says how many rows there were."""
    told = evidence.sealed_summary
    if told is None or evidence.rebuilt or evidence.run.problem:
        return []
    types = [row.get("file_type") for row in evidence.run.rows("file_registry")]
    there = {name: types.count(kind) for name, kind in COUNTS.items()}
    there["api_requests"] = len(evidence.run.rows("api_requests"))
    found = []
    for name, count in there.items():
        if isinstance(told.get(name), int) and told[name] != count:
            table = "api_requests" if name == "api_requests" else "file_registry"
            kind = MISSING if count < told[name] else FORGED
            found.append(
                Finding(
                    kind, "run.db", f"{table}, {name}", f"RUN_SEALED counts {told[name]}, {count} are here"
                )
            )
    return found + _figures(evidence, told)


def _figures(evidence: Evidence, told: dict) -> list[Finding]:
    """The seal adds up what the record has: it is what people read first."""
    calls, words = evidence.run.rows("api_requests"), Counter(row.get("event_type") for row in evidence.told)
    there: dict[str, float] = {name: sum(row.get(name) or 0 for row in calls) for name in MONEY}
    there |= {name: words[word] for name, word in WORDS.items()}
    there["inspector_blocks"] = sum(
        row.get("event_type") == "INSPECTOR_DECISION" and row.get("guard_status") == "BLOCK"
        for row in evidence.told
    )
    there["files_lost"] = sum(row.get("lost") is not None for row in evidence.run.rows("workspace_files"))
    number = max((row["id"] for row in evidence.told if row.get("event_type") == "RUN_SEALED"), default=0)
    return [
        Finding(
            ALTERED,
            "events",
            f"event {number}",
            f"its {name} is {told[name]}, the record adds up to {value:g}",
        )
        for name, value in there.items()
        if isinstance(told.get(name), int | float) and abs(told[name] - value) > ROUNDING
    ]


def _registry(evidence: Evidence) -> list[Finding]:
    """Each registered file is in the workspace, unless the inventory says that it was lost there."""
    if evidence.manifest.get("collected") == "events":
        return []
    lost = {row.get("path") for row in evidence.run.rows("workspace_files") if row.get("lost")}
    skipped = {
        str(item.get("name")) for item in evidence.manifest.get("skipped") or [] if isinstance(item, dict)
    }
    found = []
    for row in evidence.run.rows("file_registry"):
        name = str(row.get("file_path"))
        if name in lost or f"workspace/{name}" in skipped or (_inside(evidence, name) or Path()).is_file():
            continue
        if evidence.sealed_summary is not None:
            what = "the registry has it, the workspace does not"
            found.append(Finding(MISSING, f"workspace/{name}", f"file_registry {row.get('id')}", what))
    return found


def _inventory(evidence: Evidence) -> list[Finding]:
    """A file begins with the bytes that the inventory hashed when it was first seen closed."""
    if evidence.sealed_summary is None or evidence.manifest.get("collected") == "events":
        return []
    found = []
    for row in evidence.run.rows("workspace_files"):
        path = _inside(evidence, str(row.get("path")))
        known = isinstance(row.get("size"), int) and row.get("sha256") and not row.get("lost")
        if known and path is not None and path.is_file() and _start(path, row["size"]) != row["sha256"]:
            what = "the inventory has another hash of it"
            found.append(Finding(ALTERED, f"workspace/{row['path']}", f"workspace_files {row['path']}", what))
    return found


def _inside(evidence: Evidence, name: str) -> Path | None:
    """The path below the workspace; None for a name that leads out of it."""
    root = evidence.folder / "workspace"
    path = root / name
    clean = not Path(name).is_absolute() and ".." not in Path(name).parts and "\0" not in name
    return path if clean and not path.is_symlink() else None


def _start(path: Path, size: int) -> str:
    digest = hashlib.sha256()
    with plain_file.opened(path) as file:
        while size > 0 and (block := file.read(min(CHUNK, size))):
            digest.update(block)
            size -= len(block)
    return digest.hexdigest()


def _sealed(evidence: Evidence) -> list[Finding]:
    """The hash that the harness took of its sealed run.db."""
    hashes = evidence.summary.get("sha256")
    told = hashes.get("run.db") if isinstance(hashes, dict) else None
    path = evidence.folder / "run.db"
    if not told or not path.is_file() or evidence.from_disks or sums.file_sha256(path) == told:
        return []  # off a dead guest's disks run.db is written anew, so that its bytes are others
    return [Finding(ALTERED, "run.db", "the file", "its hash is not the one that was sealed")]
