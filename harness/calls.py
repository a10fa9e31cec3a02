"""GUEST: one tool call of a reply: run or not, and recorded with its one result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness import tools
from harness.repetition import REFUSAL, named
from harness.replies import ToolCall
from harness.telemetry import events
from harness.text import clean
from harness.tools.base import Outcome

if TYPE_CHECKING:
    from harness.orchestrator import Orchestrator

MOST_CALLS = 8  # tool calls of one reply that are run


def act(loop: Orchestrator, number: int, call: ToolCall) -> Outcome:
    """Run one tool call and record both its halves. Whatever happens, the call gets its one result.

    number: its place in the reply, from 1.
    """
    arguments = tools.parse(call.arguments)
    command = (arguments or {}).get("command") if call.name == "execute_shell" else None
    shown = command if isinstance(command, str) else call.arguments
    name = clean(call.name)[:80]
    loop.recorder.event(events.TOOL_CALL, tool_name=name, command_or_input=clean(shown))
    loop.desk.call = number
    outcome = _outcome(loop, number, call, arguments)
    outcome = Outcome(str(loop.recorder.mask(clean(outcome.text))), outcome.status, outcome.reason)
    loop.recorder.event(
        events.TOOL_RESULT,
        tool_name=name,
        sanitized_output=outcome.text,
        guard_status=outcome.status,
        guard_reason=outcome.reason,
    )
    return outcome


def _outcome(loop: Orchestrator, number: int, call: ToolCall, arguments: dict | None) -> Outcome:
    if number > MOST_CALLS:
        return Outcome(f"Not run: only {MOST_CALLS} calls of one reply are run.")
    if loop.link.patience() <= 0:
        return Outcome("Not run: the session was just asked to finish.")
    if loop.repetition.refuses(named(call.name, arguments, call.arguments)):
        return Outcome(REFUSAL)
    try:
        return tools.use(call.name, arguments, loop.desk)
    except Exception as error:  # a broken tool is a result, not the end of the step
        loop.recorder.event(events.GUARD, guard_reason=f"tool {call.name[:80]} failed: {error!r}"[:1000])
        return Outcome(f"The tool failed: {type(error).__name__}: {error}")
