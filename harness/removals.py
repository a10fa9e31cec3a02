"""GUEST: counts what the wrappers of rm, unlink and shred did: refusals, and things moved to the trash."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path

from harness.settings import Paths
from harness.telemetry.recorder import Recorder

BEFORE = "removals_before"  # key in session_state: the counts when the run began, for a guest that was kept
REFUSALS = ".lab-refused"  # in the sandbox's tmp: roles/no_delete's wrapper appends a line a refusal
MOST_BYTES = 16_000_000
MOST_ENTRIES = 200_000


def begin(paths: Paths) -> str:
    """Make the wrapper's list, which every user may append to. Returns what was there, as BEFORE."""
    with contextlib.suppress(OSError):
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        handle = os.open(paths.tmp / REFUSALS, flags, 0o666)
        try:
            os.fchmod(handle, 0o666)
        finally:
            os.close(handle)
    return json.dumps(_now(paths))


def counts(paths: Paths, recorder: Recorder) -> dict[str, int]:
    """files_trashed and files_refused of this run."""
    before = json.loads(recorder.state().get(BEFORE, "{}"))
    return {name: max(0, count - before.get(name, 0)) for name, count in _now(paths).items()}


def _now(paths: Paths) -> dict[str, int]:
    return {
        "files_trashed": _or_none(lambda: _entries(paths.sandbox / "trash")),
        "files_refused": _or_none(lambda: _lines(paths.tmp / REFUSALS)),
    }


def _or_none(count: Callable[[], int]) -> int:
    try:
        return count()
    except OSError:
        return 0


def _entries(trash: Path) -> int:
    """The wrapper makes a folder a removal; what lies in it was one operand each."""
    total = 0
    for removal in os.scandir(trash):
        if removal.is_dir(follow_symlinks=False) and total < MOST_ENTRIES:
            total += len(os.listdir(removal.path))
    return total


def _lines(path: Path) -> int:
    with open(path, "rb") as file:
        return file.read(MOST_BYTES).count(b"\n")
