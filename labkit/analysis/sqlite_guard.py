"""HOST: what a hostile guest's SQLite file may make this host do. Owns the limits and what schema is refused.

SQLite evaluates a file's own expressions while it is read or checked: generated columns, checks, indexes on
expressions. One call of a function can take hours, and nothing can interrupt it. So none is ever evaluated.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterable, Iterator

from labkit.errors import EVIDENCE, LabError

# Of one value or row. The longest honest one is a tool's output; the gateway takes no push as long as this.
VALUE_BYTES = 32 << 20
HEAP_BYTES = 1 << 30  # of SQLite in this process: a schema is held in memory, however long it is
RESULT_BYTES = 1 << 30  # of what is read out of one database; an eight-hour run has some tens of MB
CELL_BYTES = 64  # that a Python value takes besides its text
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: VALUE_BYTES,
    sqlite3.SQLITE_LIMIT_COLUMN: 32,  # the widest table of a record has sixteen
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,  # a statement of the schema as well: it has the default values
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 8,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
}
_PRAGMAS = ("trusted_schema = OFF", "cell_size_check = ON", "ignore_check_constraints = ON")
_BETWEEN = r"(?:[\s\ufeff]|--[^\n]*\n|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/)*"  # space and comments
_COMPUTED = re.compile(rf"\bas{_BETWEEN}\(", re.IGNORECASE)  # no other part of CREATE TABLE has AS and (
_TABLE = re.compile(r"create (?:virtual )?table ", re.IGNORECASE)  # how SQLite itself stores the statement
_NEVER_RUN = re.compile(r"create (?:view|trigger) ", re.IGNORECASE)
_PLAIN_INDEX = re.compile(r'create (?:unique )?index [^()]*\([\w\s,"`\[\]]*\)\s*', re.IGNORECASE)


def settle(connection: sqlite3.Connection, seconds: float) -> None:
    """Limits for a connection to a file that nothing is known of. After `seconds` its statements end.

    Raises LabError (EVIDENCE) for a schema with something to evaluate, sqlite3.Error for a damaged one.
    """
    for limit, most in _LIMITS.items():
        connection.setlimit(limit, most)
    for pragma in (*_PRAGMAS, f"hard_heap_limit = {HEAP_BYTES}"):
        connection.execute(f"PRAGMA {pragma}")
    end = time.monotonic() + seconds
    # An interrupt from another thread is lost between two statements; this is not.
    connection.set_progress_handler(lambda: time.monotonic() > end, 10_000)
    schema = "SELECT CAST(sql AS TEXT) FROM sqlite_master WHERE sql IS NOT NULL"
    for (text,) in connection.execute(schema):
        if not _is_plain(text):
            raise LabError(
                f"its schema computes something, as no record does: {' '.join(text[:70].split())!r}",
                "nothing of it was read: it may be made to exhaust this machine",
                EVIDENCE,
            )


def bounded(rows: Iterable[tuple], most: int = RESULT_BYTES) -> Iterator[tuple]:
    """The rows, as long as they take less than `most` bytes in all; then LabError (EVIDENCE)."""
    taken = 0
    for row in rows:
        taken += sum(CELL_BYTES + (len(v) if isinstance(v, str | bytes) else 0) for v in row)
        if taken > most:
            raise LabError(f"a table is larger than the {most >> 20} MiB that are read of one", "", EVIDENCE)
        yield row


def _is_plain(text: str) -> bool:
    if _TABLE.match(text):
        return not _COMPUTED.search(text)
    return bool(_NEVER_RUN.match(text) or _PLAIN_INDEX.fullmatch(text))
