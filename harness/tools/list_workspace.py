"""GUEST: tool list_workspace: a bounded listing of the workspace."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import islice, takewhile
from pathlib import Path

from harness.text import clean
from harness.tools.base import Desk, Outcome, schema
from harness.tools.read_file import allowed

NAME = "list_workspace"
SCHEMA = schema(
    NAME,
    "List what is in the workspace: every folder with its files and their sizes.",
    path={"type": "string", "description": "A folder of the workspace, default all of it", "optional": True},
)
MAX_LINES, MAX_DEPTH, MAX_PER_FOLDER = 400, 5, 150
SECONDS = 5.0


def run(arguments: dict, desk: Desk) -> Outcome:
    try:
        top = allowed(arguments.get("path") or ".", desk)
        ends = time.monotonic() + SECONDS
        lines = list(islice(takewhile(lambda _: time.monotonic() < ends, _lines(top, 0)), MAX_LINES + 1))
    except (OSError, ValueError) as error:
        return Outcome(f"Not listed: {getattr(error, 'strerror', None) or error}")
    shown = lines[:MAX_LINES]
    if len(lines) > MAX_LINES or time.monotonic() >= ends:
        shown.append("[there is more; list a folder by its path]")
    return Outcome("\n".join(shown) or "(empty)")


def _lines(folder: Path, depth: int) -> Iterator[str]:
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries[:MAX_PER_FOLDER]:
        indent, name = "  " * depth, _printable(entry.name)
        if entry.is_dir(follow_symlinks=False):
            yield f"{indent}{name}/"
            if depth < MAX_DEPTH and entry.name not in (".git", "__pycache__", "node_modules"):
                yield from _readable(Path(entry.path), depth + 1)
        else:
            yield f"{indent}{name}  {_size(entry)}"
    if len(entries) > MAX_PER_FOLDER:
        yield f"{'  ' * depth}[{len(entries) - MAX_PER_FOLDER} more entries here]"


def _printable(name: str) -> str:
    if name.isascii() and name.isprintable():
        return name
    return clean(name.encode(errors="replace").decode(errors="replace")).replace("\n", "?")


def _size(entry: os.DirEntry) -> str:
    try:
        return f"{entry.stat(follow_symlinks=False).st_size} bytes"
    except OSError:
        return "(gone)"


def _readable(folder: Path, depth: int) -> Iterator[str]:
    try:
        yield from _lines(folder, depth)
    except OSError as error:
        yield f"{'  ' * depth}[{error.strerror}]"
