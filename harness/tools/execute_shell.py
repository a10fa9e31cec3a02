"""GUEST: tool execute_shell: one command in bash as the Worker, gated when it names a network program."""

from __future__ import annotations

from dataclasses import replace

from harness import shell_rules
from harness.shell_gate import gated_by
from harness.text import clean, unquoted, untrusted
from harness.tools.base import Desk, Outcome, schema
from harness.tools.process import run_command

NAME = "execute_shell"
SCHEMA = schema(
    NAME,
    "Run a bash command in the workspace and get its output and exit code. Nothing can be typed into it. "
    "For long jobs use nohup ... & and look at their output later.",
    command={"type": "string", "description": "The command line"},
)
PERMITTED = "Choose a narrower command or another source, or go on without it and write down what is missing."


def run(arguments: dict, desk: Desk) -> Outcome:
    command = arguments["command"]
    if not command.strip() or "\0" in command:
        return Outcome("Not run: the command is empty or holds a NUL character.")
    if desk.phase.shell == "read_only":
        return _read_only(command, desk)
    if word := gated_by(command, desk.settings.network_programs):
        return _reviewed(command, word, desk)
    return Outcome(run_command(command, desk, shown=True).told())


def _read_only(command: str, desk: Desk) -> Outcome:
    try:
        line = shell_rules.read_only(command, str(desk.settings.paths.workspace))
    except shell_rules.Refused as refusal:
        return Outcome(f"Not run: in this phase the shell only reads: {refusal}.")
    return Outcome(run_command(line, desk, shown=True, read_only=True).told())


def _reviewed(command: str, word: str, desk: Desk) -> Outcome:
    """Command before it runs, output before it is shown; what was reviewed is what is handed over."""
    hidden = "" if clean(command) == command else " (and it holds invisible characters)"
    before = desk.inspector.review("command", f"names {word}{hidden}", command)
    if not before.allowed:
        text = (
            f"Not run: the Inspector did not let this command through. Reason: {before.reason}. {PERMITTED}"
        )
        return Outcome(text, before.status, before.reason)
    done = run_command(command, desk, shown=False)
    if not done.output.strip():
        return Outcome(done.told(), before.status, before.reason)
    after = desk.inspector.review("output", command, done.output)
    if not after.allowed:
        why = f"Reason: {unquoted(after.reason)}. {PERMITTED}"
        text = f"The command ran ({done.ending}), but its output is withheld. {why}"
        return Outcome(text, after.status, after.reason)
    wrapped = untrusted(done.output, f"output of: {command[:120]}", desk.world.mark())
    return Outcome(replace(done, output=wrapped).told(), after.status, after.reason)
