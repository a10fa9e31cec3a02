"""GUEST: a step that failed: recorded where it can be, its calls answered; how many in a row end a run."""

from __future__ import annotations

import sqlite3
import traceback
from typing import TYPE_CHECKING

from harness.errors import ContextError, ModelError
from harness.session import FORGOTTEN, UNRECORDED, answer_open_calls
from harness.telemetry import events
from harness.telemetry.recorder import Recorder

if TYPE_CHECKING:
    from harness.orchestrator import Orchestrator

MOST_FAILURES = 5  # failed steps in a row before the ending begins


def failed(loop: Orchestrator, error: Exception) -> str | None:
    """Record a failed step. Returns a stop_reason once there were too many in a row."""
    loop.failures += 1
    known = isinstance(error, ModelError)
    detail = str(error) if known else "".join(traceback.format_exception(error))[-3000:]
    said = {"sanitized_output" if known else "guard_reason": f"step failed: {detail}"}
    tell(loop.recorder, events.API_ERROR if known else events.GUARD, **said)
    if isinstance(error, ContextError) and (gone := loop.context.repair()):
        tell(loop.recorder, events.GUARD, guard_reason=f"{gone} broken steps were left out of the window")
    _answer_open_calls(loop)
    if loop.failures < MOST_FAILURES:
        loop.clock.wait(min(5.0, 0.2 * 2**loop.failures), loop.stop)
        return None
    if isinstance(error, sqlite3.Error):
        return "disk limit reached"  # the record cannot be written any more
    return "model unreachable" if known else "interrupted"


def tell(recorder: Recorder, word: str, **said: str) -> None:
    """An event about a fault that can be the record's own."""
    try:
        recorder.event(word, **said)
    except sqlite3.Error as error:
        print(f"harness: {word} {said} ({error})", flush=True)  # the journal is all that is left


def _answer_open_calls(loop: Orchestrator) -> None:
    """A call whose result was not recorded gets one now; the Worker, who will not see it, is told."""
    try:
        if answer_open_calls(loop.recorder, UNRECORDED) and FORGOTTEN not in loop.notices:
            loop.notices.append(FORGOTTEN)
    except sqlite3.Error as error:
        print(f"harness: a call is still without its result: {error}", flush=True)
