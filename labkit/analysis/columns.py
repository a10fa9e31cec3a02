"""HOST: turns SQLite columns into DuckDB columns. Owns the types, and what a value of the wrong type becomes.

SQLite keeps any value in any column; DuckDB does not. A value of the wrong type reads as NULL and
is counted, so that one bad cell can neither stop a question nor pass unseen.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import duckdb

from labkit.analysis.sqlite_file import quoted
from labkit.analysis.sqlite_guard import bounded

CHUNK_ROWS = 20_000

# SQLite's affinity rules, in its order; DATETIME stays the text that it is.
_BY_DECLARED = (
    ("INT", "BIGINT"),
    ("CHAR", "VARCHAR"),
    ("CLOB", "VARCHAR"),
    ("TEXT", "VARCHAR"),
    ("BLOB", "BLOB"),
    ("REAL", "DOUBLE"),
    ("FLOA", "DOUBLE"),
    ("DOUB", "DOUBLE"),
    ("NUM", "DOUBLE"),
    ("DEC", "DOUBLE"),
    ("BOOL", "BIGINT"),
)


class _Misfit(Exception):
    pass


@dataclass(frozen=True)
class Column:
    """One column: its name and its DuckDB type."""

    name: str
    type: str


def of_table(source: sqlite3.Connection, table: str) -> list[Column]:
    """The columns of a table, typed by how SQLite declares them."""
    rows = source.execute(f"PRAGMA table_info({quoted(table)})").fetchall()
    return [Column(row[1], duckdb_type(row[2] or "")) for row in rows]


def duckdb_type(declared: str) -> str:
    """The DuckDB type for a declared SQLite type; VARCHAR where nothing is declared."""
    upper = declared.upper()
    return next((type_ for word, type_ in _BY_DECLARED if word in upper), "VARCHAR")


def copy_table(source: sqlite3.Connection, target: duckdb.DuckDBPyConnection, table: str) -> list[str]:
    """Copies one table, row order kept. Returns a sentence for each column with misfits."""
    columns = of_table(source, table)
    misfits = dict.fromkeys((column.name for column in columns), 0)
    declared = ", ".join(f"{quoted(column.name)} {column.type}" for column in columns)
    target.execute(f"CREATE TABLE {quoted(table)} ({declared})")
    unnested = ", ".join(f"unnest($c{i}::{column.type}[])" for i, column in enumerate(columns))
    for rows in _chunks(source, table, columns):
        values = {
            f"c{i}": _converted(column, [row[i] for row in rows], misfits) for i, column in enumerate(columns)
        }
        target.execute(f"INSERT INTO {quoted(table)} SELECT {unnested}", values)
    types = {column.name: column.type for column in columns}
    return [
        f"{table}.{name}: {count} value(s) are not {types[name]} and read as NULL"
        for name, count in misfits.items()
        if count
    ]


def _chunks(source: sqlite3.Connection, table: str, columns: list[Column]) -> Iterator[list[tuple]]:
    listed = ", ".join(quoted(column.name) for column in columns)
    cursor = bounded(source.execute(f"SELECT {listed} FROM {quoted(table)}"))
    while rows := list(itertools.islice(cursor, CHUNK_ROWS)):
        yield rows


def _converted(column: Column, values: list, misfits: dict[str, int]) -> list:
    convert, result = _CONVERT[column.type], []
    for value in values:
        try:
            result.append(None if value is None else convert(value))
        except _Misfit:
            misfits[column.name] += 1
            result.append(None)
    return result


def _integer(value: object) -> int:
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    raise _Misfit


def _real(value: object) -> float:
    if isinstance(value, int | float):
        return float(value)
    raise _Misfit


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _blob(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


_CONVERT: dict[str, Callable] = {"BIGINT": _integer, "DOUBLE": _real, "VARCHAR": _text, "BLOB": _blob}
