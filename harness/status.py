"""GUEST: the status message that closes every prompt; all that changes from step to step is in here."""

from __future__ import annotations

from harness import prompting
from harness.clock import Clock, spoken
from harness.money import Purse
from harness.phases import Phase
from harness.telemetry.recorder import Recorder

COMPACTED = "Your context was cut: older steps are only in the digest now. Reorient with list_workspace."
NUDGED = "There is a new message from the orchestrator above; answer it in your next thought."


def status(
    recorder: Recorder, phase: Phase, clock: Clock, purse: Purse, compacted: bool, nudged: bool, cause: str,
    jobs: str = "",
) -> str:  # fmt: skip
    """prompts/status.md, filled. cause: why the run is being brought to its end, or ''. jobs: what runs."""
    ending = f"The session is being brought to its end: {cause}." if cause else ""
    notices = [*([COMPACTED] if compacted else []), *([NUDGED] if nudged else []), jobs, ending]
    return prompting.fill(
        prompting.text("status"),
        phase=phase.name,
        goal=phase.goal,
        step=str(recorder.step),
        elapsed=spoken(clock.elapsed()),
        length=spoken(clock.end),
        remaining=spoken(clock.remaining()),
        spent=f"{purse.spent:.4f}",
        budget=f"{purse.budget:.2f}",
        notes=str(recorder.registered("SCRATCHPAD")),
        scripts=str(recorder.registered("SCRIPT")),
        masters=str(recorder.registered("MASTER_SUMMARY")),
        notices="\n".join(filter(None, notices)) or "No news.",
    )
