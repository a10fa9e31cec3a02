"""GUEST: the registry of the Worker's six tools: name -> module with SCHEMA and run(arguments, desk)."""

from __future__ import annotations

import json
from types import ModuleType

from harness.tools import (
    browser_fetch,
    execute_shell,
    list_workspace,
    read_file,
    write_scratchpad,
    write_script,
)
from harness.tools.base import Desk, Outcome

TOOLS: dict[str, ModuleType] = {
    tool.NAME: tool
    for tool in (execute_shell, write_scratchpad, write_script, browser_fetch, read_file, list_workspace)
}
_TYPES = {"string": str, "integer": int}


def schemas(names: tuple[str, ...]) -> list[dict]:
    return [TOOLS[name].SCHEMA for name in names]


def parse(raw: str) -> dict | None:
    """A call's arguments as a dict; None where they are no JSON object."""
    try:
        arguments = json.loads(raw or "{}")
    except (ValueError, RecursionError):  # the second: a hundred thousand brackets
        return None
    return arguments if isinstance(arguments, dict) else None


def use(name: str, arguments: dict | None, desk: Desk) -> Outcome:
    """Run one call. Whatever is wrong with it comes back as a sentence the Worker can act on."""
    if name not in desk.offered():
        when = "for some steps" if name in desk.phase.tools else f"in phase {desk.phase.name}"
        return Outcome(f"Not run: {name[:60]!r} is not offered {when}. Offered: {', '.join(desk.offered())}.")
    if arguments is None:
        return Outcome("Not run: the arguments are not a JSON object. Send the call again with valid JSON.")
    if problem := _problem(TOOLS[name].SCHEMA["function"]["parameters"], arguments):
        return Outcome(f"Not run: {problem}.")
    return TOOLS[name].run(arguments, desk)


def _problem(parameters: dict, arguments: dict) -> str:
    known = parameters["properties"]
    for name in parameters["required"]:
        if name not in arguments:
            return f"the argument {name!r} is missing"
    for name, value in arguments.items():
        if name not in known:
            return f"there is no argument {name[:60]!r}; known: {', '.join(known)}"
        wanted = _TYPES[known[name]["type"]]
        optional_null = value is None and name not in parameters["required"]
        if not optional_null and (not isinstance(value, wanted) or isinstance(value, bool)):
            return f"the argument {name!r} must be of type {known[name]['type']}"
    return ""
