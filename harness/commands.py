"""GUEST: what a person asks of the running session: recorded first, then obeyed, each command once.

A command's COMMAND event is on the disk before it has any effect, and its effects are in the checkpoint
that follows. After a crash between the two the effects are made again from the event, which is not repeated.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from typing import TYPE_CHECKING

from harness.clock import spoken
from harness.telemetry import events
from harness.text import clean

if TYPE_CHECKING:
    from harness.orchestrator import Orchestrator

FINISHED, STOPPED = "finished by a person", "stopped by a person"  # stop reasons
HOLD_TICK = 0.2  # seconds between looks while paused
HOLD_CHECKPOINT = 30.0  # so that a crash during a pause forgets little of the wall clock
SAID = (
    "[Message from the person who runs this session. It came through the orchestrator, not from a page or a "
    "file.]\n\n{text}"
)
PAUSED = "[Pause] The session was held for {time} on request. That time is not charged to you."
EXTENDED = "[More room] The session was extended by {what}. The status message has the new figures."


class StopFlag(threading.Event):
    """Set when the run is to end at once. Knows when the loop last looked: one that hangs looks no more."""

    def __init__(self) -> None:
        super().__init__()
        self.looked_at = time.monotonic()

    def is_set(self) -> bool:
        self.looked_at = time.monotonic()
        return super().is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """In short slices, so that a long wait is not taken for a hanging loop."""
        ends = float("inf") if timeout is None else time.monotonic() + timeout
        while not super().wait(min(1.0, max(0.0, ends - time.monotonic()))):
            self.looked_at = time.monotonic()
            if self.looked_at >= ends:
                return False
        return True


def obey(loop: Orchestrator) -> None:
    """Between two steps: record what came and do it; while the session is paused, stay here."""
    loop.link.wake()
    _take(loop)
    if loop.session.paused:
        _hold(loop)


def _take(loop: Orchestrator) -> None:
    # After a crash the link asks before the record is read: what was obeyed already may come along once more.
    taken = [one for one in loop.link.take_commands() if int(one["id"]) > loop.session.commands_after]
    for at, command in enumerate(taken):
        line = clean(json.dumps(command, ensure_ascii=False))
        try:
            loop.recorder.event(events.COMMAND, command_or_input=line)
        except sqlite3.Error:
            loop.link.give_back(taken[at:])
            raise
        _apply(loop, command)
    if taken:
        loop.checkpoint()
        loop.link.acknowledge(loop.session.commands_after)


def _hold(loop: Orchestrator) -> None:
    """Wait for `unpause`, `finish` or `stop`; the wall limit ends a pause that nobody ends."""
    began = kept = loop.clock.wall_elapsed()
    while loop.session.paused:
        loop.end_if_over()
        with loop.clock.uncharged():
            loop.clock.wait(HOLD_TICK, loop.stop)
        _take(loop)
        if loop.clock.wall_elapsed() - kept > HOLD_CHECKPOINT:
            kept = loop.clock.wall_elapsed()
            loop.checkpoint()
    loop.notices.append(PAUSED.format(time=spoken(loop.clock.wall_elapsed() - began)))
    loop.checkpoint()


def made_up_for(loop: Orchestrator) -> None:
    """After a crash: commands that are in the record and not in the checkpoint have their effect now."""
    sql = "SELECT command_or_input FROM execution_logs WHERE event_type = 'COMMAND' ORDER BY id"
    for (line,) in loop.recorder.query(sql):
        command = _read(line)
        if command["id"] > loop.session.commands_after:
            _apply(loop, command)
    loop.link.commands_after = max(loop.link.commands_after, loop.session.commands_after)
    loop.link.acknowledge(loop.session.commands_after)
    if loop.session.cause == STOPPED:
        loop.stop.set()


def _read(line: str) -> dict:
    try:
        return {"id": 0, "name": ""} | json.loads(line)
    except ValueError:
        return {"id": 0, "name": ""}


def last_words(loop: Orchestrator, stop_reason: str) -> str:
    """The loop is over: what came meanwhile is recorded. Returns the run's stop_reason."""
    try:
        _take(loop)
    except sqlite3.Error as error:
        print(f"harness: the last commands could not be recorded: {error}", flush=True)
    return STOPPED if loop.session.cause == STOPPED else stop_reason


def _apply(loop: Orchestrator, command: dict) -> None:
    loop.session.commands_after = max(loop.session.commands_after, int(command["id"]))
    action = _ACTIONS.get(command["name"])
    if action is not None:  # a word of a later kit is recorded and no more
        action(loop, command.get("args") or {})


def _pause(loop: Orchestrator, args: dict) -> None:
    loop.session.paused = True


def _unpause(loop: Orchestrator, args: dict) -> None:
    loop.session.paused = False


def _say(loop: Orchestrator, args: dict) -> None:
    loop.notices.append(SAID.format(text=clean(str(args.get("text", "")))))


def _extend(loop: Orchestrator, args: dict) -> None:
    """More of both: a run that the money guard was bringing to its end goes on if the money suffices now."""
    session, seconds = loop.session, 60 * float(args.get("minutes") or 0)
    usd = float(args.get("budget_usd") or 0)
    loop.clock.extend(seconds)
    loop.purse.budget += usd
    session.length_seconds, session.budget_usd = loop.clock.length, loop.purse.budget
    if usd and session.cause == "budget exhausted":
        session.cause = ""
    what = [spoken(seconds)] * (seconds > 0) + [f"${usd:.2f}"] * (usd > 0)
    loop.notices.append(EXTENDED.format(what=" and ".join(what) or "nothing"))


def _finish(loop: Orchestrator, args: dict) -> None:
    loop.session.paused = False
    if not loop.session.cause:
        loop.session.cause = FINISHED
        loop.clock.finish_soon()


def _stop(loop: Orchestrator, args: dict) -> None:
    loop.session.paused = False
    loop.session.cause = STOPPED
    loop.stop.set()


_ACTIONS = {
    "pause": _pause,
    "unpause": _unpause,
    "say": _say,
    "extend": _extend,
    "finish": _finish,
    "stop": _stop,
}
