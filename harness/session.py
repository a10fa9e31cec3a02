"""GUEST: the checkpoint of a run in session_state, written after each step and read after a crash."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field

from harness.context import Step
from harness.telemetry import events
from harness.telemetry.recorder import Recorder

PLACE = "step "  # key in session_state, with a number: one step of the window or of what awaits its digest
INTERRUPTED = "interrupted: the harness was restarted during this call; it was not run again"
RESTARTED = (
    "[Restart] The harness was restarted. Your last call may have been half done: look before you repeat it."
)
UNRECORDED = "interrupted: the record could not be written during this call; it was not run again"
FORGOTTEN = (
    "[Fault] Your last step could not be recorded and is not in your memory. "
    "Its call may have been done: look before you repeat it."
)


@dataclass
class Session:
    """What a restarted loop needs to go on as if nothing had happened. Seconds are active ones.

    cause: the stop_reason that a guard or a person has fixed already; '' while nothing did.
    reports_before: reports that were there when the phase began. repetition: what that guard remembers.
    pending: steps that left the window and are not yet in the digest.
    paused, length_seconds, budget_usd (0: as the settings say): what commands made of it.
    notices: what the Worker is still to be told.
    window, pending: places of their steps, in order. A step has a row of its own, so that a checkpoint writes
    the newest one and not the whole memory again; a place is used anew when its step has left both.
    """

    run_id: str
    status: str = "running"
    step: int = 0
    phase: str = ""
    elapsed_seconds: float = 0.0
    wall_seconds: float = 0.0
    spent_usd: float = 0.0
    unknown_usd: float = 0.0
    chars_per_token: float = 0.0
    last_nudge_seconds: float = 0.0
    cause: str = ""
    ends_at_seconds: float = 0.0
    commands_after: int = 0
    paused: bool = False
    length_seconds: float = 0.0
    budget_usd: float = 0.0
    notices: list[str] = field(default_factory=list)
    watermark: int = 0
    digest: str = ""
    reports_before: list[str] = field(default_factory=list)
    repetition: dict = field(default_factory=dict)
    window: list[int] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)
    placed: dict[int, Step] = field(default_factory=dict)

    def save(self, recorder: Recorder, more: dict[str, str] | None = None) -> None:
        """more: what else of session_state is to be there with it or not at all."""
        recorder.checkpoint(self.rows() | (more or {}))

    def rows(self) -> dict[str, str]:
        """All of it, as session_state holds it."""
        told = {key: _text(value) for key, value in vars(self).items() if key != "placed"}
        return told | {f"{PLACE}{place}": step.as_json for place, step in self.placed.items()}

    def steps(self) -> list[Step]:
        return [self.placed[place] for place in self.window]

    def pending_steps(self) -> list[Step]:
        return [self.placed[place] for place in self.pending]

    def keep(self, steps: list[Step], pending: list[Step]) -> None:
        wanted = {id(step) for step in [*steps, *pending]}
        self.placed = {place: step for place, step in self.placed.items() if id(step) in wanted}
        self.window, self.pending = self._places(steps), self._places(pending)

    def _places(self, steps: list[Step]) -> list[int]:
        known = {id(step): place for place, step in self.placed.items()}
        free = (place for place in itertools.count() if place not in self.placed)
        for step in steps:
            if id(step) not in known:
                known[id(step)] = place = next(free)
                self.placed[place] = step
        return [known[id(step)] for step in steps]


def answer_open_calls(recorder: Recorder, text: str) -> int:
    """A result for each call that stands in the record without one. Returns how many there were."""
    sql = (
        "SELECT tool_name FROM execution_logs WHERE event_type = 'TOOL_CALL' AND id > "
        "(SELECT COALESCE(MAX(id), 0) FROM execution_logs WHERE event_type = 'TOOL_RESULT')"
    )
    names = [name for (name,) in recorder.query(sql)]
    for name in names:
        recorder.event(events.TOOL_RESULT, tool_name=name, sanitized_output=text, guard_status=events.BYPASS)
    return len(names)


def sealed_summary(recorder: Recorder) -> dict | None:
    """The summary of a run whose seal has begun; a failing disk may have kept only one of its two places."""
    sql = "SELECT sanitized_output FROM execution_logs WHERE event_type = 'RUN_SEALED'"
    text = recorder.state().get("summary") or "".join(said for (said,) in recorder.query(sql)[:1])
    return json.loads(text) if text else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def load(recorder: Recorder, run_id: str) -> Session | None:
    """The session to go on with, or None for a new run."""
    state = recorder.state()
    if state.get("run_id") != run_id or state.get("status") != "running":
        return None
    session = from_rows(state)
    session.phase = _last_phase(recorder) or session.phase
    return session


def from_rows(state: dict[str, str]) -> Session:
    """The session of session_state. Raises ValueError or LookupError for one that is damaged."""
    texts = {key for key, value in vars(Session("")).items() if isinstance(value, str)}
    known = {key: value for key, value in state.items() if key in Session.__dataclass_fields__}
    session = Session(**{key: value if key in texts else json.loads(value) for key, value in known.items()})
    for place in [*session.window, *session.pending]:
        session.placed[place] = Step(**json.loads(state[f"{PLACE}{place}"]))
    return session


def _last_phase(recorder: Recorder) -> str:
    """The record knows of a phase that began after the last checkpoint."""
    sql = "SELECT phase FROM execution_logs WHERE event_type = 'PHASE_STARTED' ORDER BY id DESC LIMIT 1"
    return "".join(phase for (phase,) in recorder.query(sql))
