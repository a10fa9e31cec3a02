"""GUEST: tool write_scratchpad: one new note in notes/."""

from __future__ import annotations

from harness.tools.base import Desk, Outcome, schema
from harness.tools.new_files import NotWritten, notes_folder, write_new

NAME = "write_scratchpad"
SCHEMA = schema(
    NAME,
    "Write a new markdown note into notes/. One finding, one note. Existing files are never overwritten.",
    filename={"type": "string", "description": "Plain file name, such as fsync_cost_per_write.md"},
    content={"type": "string", "description": "The whole note, markdown"},
)


def run(arguments: dict, desk: Desk) -> Outcome:
    name = arguments["filename"]
    name = name if name.endswith(".md") else f"{name}.md"
    try:
        folder = notes_folder(desk.settings.paths.notes)
        path = write_new(folder, name, arguments["content"], desk.recorder, desk.owner())
    except NotWritten as refusal:
        return Outcome(f"Not written: {refusal}.")
    return Outcome(f"Written: {path} ({len(arguments['content'])} characters).")
