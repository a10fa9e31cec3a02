"""GUEST: compares the two copies of the record and copies what one lacks. Reads and writes, never deletes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

BY_ID = ("execution_logs", "file_registry", "api_requests")
BY_KEY = ("session_state", "prompts", "workspace_files")


def last_id(db: sqlite3.Connection) -> int:
    return db.execute("SELECT COALESCE(MAX(id), 0) FROM execution_logs").fetchone()[0]


def agree(one: sqlite3.Connection, other: sqlite3.Connection) -> bool:
    """Whether both can be copies of one record: the last event that both hold is the same row."""
    common = min(last_id(one), last_id(other))
    sql = "SELECT * FROM execution_logs WHERE id <= ? ORDER BY id DESC LIMIT 1"
    rows = [db.execute(sql, (common,)).fetchone() for db in (one, other)]
    return common == 0 or None in rows or rows[0][0] != rows[1][0] or rows[0] == rows[1]


def copy_missing(source: sqlite3.Connection, target: sqlite3.Connection) -> int:
    """Give target every row of source that it lacks or holds otherwise, ids kept. Returns how many."""
    return put(target, missing(source, target))


def missing(source: sqlite3.Connection, target: sqlite3.Connection) -> dict[str, list[tuple]]:
    """Table to the rows of source that target lacks or holds otherwise."""
    found = {table: _missing_ids(source, target, table) for table in BY_ID}
    return found | {table: _other_rows(source, target, table) for table in BY_KEY}


def put(target: sqlite3.Connection, found: dict[str, list[tuple]]) -> int:
    """Write rows of `missing`, ids kept. Returns how many. All or none: the rest would not be found again."""
    lacking = {table: rows for table, rows in found.items() if rows}
    if lacking:
        with _transaction(target):
            for table, rows in lacking.items():
                marks = ", ".join("?" * len(rows[0]))
                target.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", rows)
    return sum(map(len, found.values()))


def _missing_ids(source: sqlite3.Connection, target: sqlite3.Connection, table: str) -> list[tuple]:
    last, held = target.execute(f"SELECT COALESCE(MAX(id), 0), COUNT(*) FROM {table}").fetchone()
    (known,) = source.execute(f"SELECT COUNT(*) FROM {table} WHERE id <= ?", (last,)).fetchone()
    if held == known:  # nothing is missing but the end
        return source.execute(f"SELECT * FROM {table} WHERE id > ? ORDER BY id", (last,)).fetchall()
    ids = {row_id for (row_id,) in target.execute(f"SELECT id FROM {table}")}
    return [row for row in source.execute(f"SELECT * FROM {table} ORDER BY id") if row[0] not in ids]


def _other_rows(source: sqlite3.Connection, target: sqlite3.Connection, table: str) -> list[tuple]:
    held = set(target.execute(f"SELECT * FROM {table}"))
    return [row for row in source.execute(f"SELECT * FROM {table}") if row not in held]


def integrity(db: sqlite3.Connection) -> str:
    """'ok', or what SQLite finds wrong; its write-ahead log is emptied first."""
    try:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        rows = db.execute("PRAGMA integrity_check").fetchmany(3)
    except sqlite3.Error as error:
        return str(error)
    return "; ".join(str(row[0]) for row in rows)


def in_one(db: sqlite3.Connection, sql: str, rows: list) -> None:
    """All rows in one transaction, or none of them. A single row is one by itself, at a third of the work."""
    if len(rows) == 1:
        db.execute(sql, rows[0])
        return
    with _transaction(db):
        db.executemany(sql, rows)


def insertion(table: str, row: dict) -> tuple[str, list]:
    """The statement that puts a row there, and its values. One with a key takes the place of the old one."""
    verb = "INSERT OR REPLACE" if table in BY_KEY else "INSERT"
    sql = f"{verb} INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"
    return sql, list(row.values())


def each_in_one(db: sqlite3.Connection, statements: list[tuple[str, list]]) -> list[int]:
    """The same for statements with their values, of several tables. Returns the ids of their rows."""
    if len(statements) == 1:
        return [db.execute(*statements[0]).lastrowid or 0]
    with _transaction(db):
        return [db.execute(*statement).lastrowid or 0 for statement in statements]


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
