"""GUEST: tool write_script: one new executable file in scripts/."""

from __future__ import annotations

from harness.tools.base import Desk, Outcome, schema
from harness.tools.new_files import NotWritten, scripts_folder, write_new

NAME = "write_script"
SCHEMA = schema(
    NAME,
    "Write a new program into scripts/, mode 0755. Nothing is overwritten: write the next version.",
    filename={"type": "string", "description": "Plain file name, such as probe_v2.py"},
    content={"type": "string", "description": "The whole program, with its #! line"},
)


def run(arguments: dict, desk: Desk) -> Outcome:
    try:
        folder = scripts_folder(desk.settings.paths.scripts)
        path = write_new(folder, arguments["filename"], arguments["content"], desk.recorder, desk.owner())
    except NotWritten as refusal:
        return Outcome(f"Not written: {refusal}.")
    return Outcome(f"Written: {path}, executable ({len(arguments['content'])} characters).")
