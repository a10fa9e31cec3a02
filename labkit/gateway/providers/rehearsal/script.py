"""HOST: reads `script.yml` into moves and fills their texts from what has happened so far."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

SCRIPT = Path(__file__).with_name("script.yml")
FIELD = re.compile(r"@@(\w+)(?::(\w+))?@@")
SIZES = (1, 2, 4, 8, 16)

# How a tool may call its arguments. The script uses the first word of each row; the offered schema decides.
ALIASES = (
    ("name", "filename", "file_name", "title", "path", "file_path"),
    ("content", "text", "body", "markdown", "code", "source"),
    ("path", "file_path", "file", "filename", "name"),
    ("command", "cmd"),
    ("url", "uri", "address"),
)


@dataclass(frozen=True)
class Move:
    """One thing the Worker does: a thought and a tool with arguments, or (tool empty) words only."""

    id: str
    thought: str
    tool: str = ""
    args: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Phase:
    """Moves played once in order, then a loop of moves."""

    moves: tuple[Move, ...]
    loop: tuple[Move, ...]


@functools.cache
def load() -> dict[str, Phase]:
    """The phases of script.yml by name."""
    data = yaml.safe_load(SCRIPT.read_text(encoding="utf-8"))
    return {
        name: Phase(tuple(map(_move, row["moves"])), tuple(map(_move, row["loop"])))
        for name, row in data.items()
    }


def _move(row: dict) -> Move:
    return Move(row["id"], row["thought"], row.get("tool", ""), tuple(row.get("args", {}).items()))


def fill(template: str, value: Callable[[str, str], str]) -> str:
    """The template with each @@name:argument@@ replaced by value(name, argument)."""
    return FIELD.sub(lambda found: value(found[1], found[2] or ""), template)


def named_as_offered(args: dict[str, str], schema: dict) -> dict[str, str]:
    """The arguments under the names that the tool's JSON schema gives them."""
    offered = list((schema.get("properties") or {}) if isinstance(schema, dict) else {})
    return {_offered_name(name, offered): value for name, value in args.items()}


def _offered_name(name: str, offered: list[str]) -> str:
    if name in offered:
        return name
    for row in ALIASES:
        if row[0] == name:
            return next((alias for alias in row if alias in offered), name)
    return name
