"""GUEST: the four phases of a run, as four rows of data. Change a phase here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass

ALL_SIX = (
    "execute_shell", "write_scratchpad", "write_script", "browser_fetch", "read_file", "list_workspace",
)  # fmt: skip


@dataclass(frozen=True)
class Phase:
    """One phase.

    starts_at: fraction of the run's active time at which it begins.
    goal: what the status message and the event say it is for.
    tools: names the Worker is offered; any other call is answered with a refusal.
    shell: 'full' or 'read_only' (harness/shell_rules.py).
    deliverable, written_with: what the phase should leave behind, and the tool able to write it.
    """

    name: str
    starts_at: float
    goal: str
    tools: tuple[str, ...]
    shell: str
    deliverable: str
    written_with: str


PHASES = (
    Phase(
        "EXPLORATION",
        starts_at=0.0,
        goal="Look around widely, try things out, measure them, and leave one note for each result. "
        "Build nothing lasting yet.",
        tools=("execute_shell", "write_scratchpad", "browser_fetch", "read_file", "list_workspace"),
        shell="full",
        deliverable="notes/*.md",
        written_with="write_scratchpad",
    ),
    Phase(
        "DEVELOPMENT",
        starts_at=0.20,
        goal="Pick the thread that promises most and make a working tool of it under scripts/. "
        "One thing that works is worth more than three that almost do.",
        tools=ALL_SIX,
        shell="full",
        deliverable="scripts/*",
        written_with="write_script",
    ),
    Phase(
        "SYNTHESIS",
        starts_at=0.5333,
        goal="Bring it together: test and document what was built, and write the next master_vN.md from your "
        "notes. Begin something new only if it is small and will surely be done.",
        tools=ALL_SIX,
        shell="full",
        deliverable="notes/master_vN.md",
        written_with="write_scratchpad",
    ),
    Phase(
        "FINAL_REPORT",
        starts_at=0.75,
        goal="Write notes/final_report_v1.md with write_scratchpad; nothing else is left to do. "
        "The shell only reads now. When the report stands, answer without a tool call.",
        tools=("execute_shell", "write_scratchpad", "read_file", "list_workspace"),
        shell="read_only",
        deliverable="notes/final_report_v1.md",
        written_with="write_scratchpad",
    ),
)

FINAL = PHASES[-1]


def phase_at(fraction: float) -> Phase:
    """The phase that a run is in after this fraction of its active time (above 1: the last)."""
    return [phase for phase in PHASES if phase.starts_at <= max(0.0, fraction)][-1]
