"""HOST: the named questions. Owns which .sql files exist, their order, and finding one by name."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

from labkit.errors import USAGE, LabError

FOLDER = Path(__file__).parent / "queries"

# The reference run's seven, in its order. A further .sql file in the folder needs no line here.
SEVEN = (
    "activity_over_time",
    "cumulative_cost",
    "tokens_by_phase",
    "inspector_gate",
    "tool_calls",
    "event_types",
    "files_written",
)

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_SQL_WORDS = ("select", "with", "from", "values", "explain", "describe", "show", "summarize")
_NEAR = 0.6  # of difflib's ratio: a slip or two of the keyboard


@dataclass(frozen=True)
class Question:
    """One .sql file: its name, the sentence in its first line, the SQL (comment included)."""

    name: str
    sentence: str
    sql: str


def names() -> list[str]:
    """Every question's name: the seven in order, then the others by alphabet."""
    others = sorted(path.stem for path in FOLDER.glob("*.sql") if path.stem not in SEVEN)
    return [*SEVEN, *others]


def load(name: str) -> Question:
    """The question of that name (`-` counts as `_`).

    Raises LabError (USAGE) for an unknown name; the nearest one and the list are in the hint.
    """
    stem = name.strip().lower().replace("-", "_")
    if stem not in names():
        raise _unknown(name, stem)
    sql = (FOLDER / f"{stem}.sql").read_text(encoding="utf-8")
    return Question(stem, sql.splitlines()[0].removeprefix("--").strip(), sql)


def is_name(text: str) -> bool:
    """One bare word is a name; with a space or punctuation it is SQL, as are the words SQL begins with."""
    return _NAME.fullmatch(text.strip()) is not None and text.strip().lower() not in _SQL_WORDS


def _unknown(name: str, stem: str) -> LabError:
    part_of = [known for known in names() if len(stem) > 2 and stem.rstrip("s") in known]
    near = difflib.get_close_matches(stem, names(), n=1, cutoff=_NEAR) or part_of
    guess = f"did you mean `lab query {near[0]}`? " if near else ""
    return LabError(f"there is no question named '{name}'", f"{guess}The names: {', '.join(names())}", USAGE)
