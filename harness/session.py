"""GUEST: the checkpoint of a run in session_state, written after each step and read after a crash."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from harness.context import Step
from harness.telemetry import events
from harness.telemetry.recorder import Recorder

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
    window: str = "[]"  # steps as JSON, and so is what follows
    pending: str = "[]"

    def save(self, recorder: Recorder, more: dict[str, str] | None = None) -> None:
        """more: what else of session_state is to be there with it or not at all."""
        recorder.checkpoint({key: _text(value) for key, value in vars(self).items()} | (more or {}))

    def steps(self) -> list[Step]:
        return _as_steps(self.window)

    def pending_steps(self) -> list[Step]:
        return _as_steps(self.pending)

    def keep(self, steps: list[Step], pending: list[Step]) -> None:
        self.window, self.pending = _as_json(steps), _as_json(pending)


def _as_steps(text: str) -> list[Step]:
    return [Step(item["number"], item["messages"]) for item in json.loads(text)]


def _as_json(steps: list[Step]) -> str:
    return f"[{', '.join(step.as_json for step in steps)}]"


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
    texts = {key for key, value in vars(Session(run_id)).items() if isinstance(value, str)}
    known = {key: value for key, value in state.items() if key in Session.__dataclass_fields__}
    session = Session(**{key: value if key in texts else json.loads(value) for key, value in known.items()})
    session.phase = _last_phase(recorder) or session.phase
    return session


def _last_phase(recorder: Recorder) -> str:
    """The record knows of a phase that began after the last checkpoint."""
    sql = "SELECT phase FROM execution_logs WHERE event_type = 'PHASE_STARTED' ORDER BY id DESC LIMIT 1"
    return "".join(phase for (phase,) in recorder.query(sql))
