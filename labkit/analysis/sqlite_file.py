"""HOST: opens a run's SQLite file for reading. Owns that the copy on disk is never touched.

The file comes from a guest whose root may be hostile: nothing in it is trusted, every failure
is a LabError, and no view, trigger, virtual table or expression of its own is ever run.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

from labkit.analysis import sqlite_guard
from labkit.analysis.text import harmless
from labkit.errors import EVIDENCE, NOT_READY, LabError
from labkit.late import after

MAGIC = b"SQLite format 3\0"
SECONDS = 600.0


@contextmanager
def opened(path: Path, seconds: float = SECONDS) -> Iterator[sqlite3.Connection]:
    """A read-only connection to `path`, whose statements end after `seconds` in all.

    Without a -wal file it is opened immutable, so that SQLite leaves no -shm beside it. With one
    (a copy somebody took by hand) both files are read from a temporary folder.
    Raises LabError when the file is missing (NOT_READY), no database, or has something to evaluate in its
    schema (EVIDENCE); an sqlite3.DatabaseError met while reading becomes a LabError (EVIDENCE) as well.
    """
    _check_header(path)
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="lab-sqlite-") as scratch:
        try:
            with (
                closing(_connect(path, Path(scratch))) as connection,
                deadline(connection, seconds),
            ):
                sqlite_guard.settle(connection, seconds)
                yield connection
        # UnicodeError: sqlite3 cannot decode its own message about a damaged schema
        except (sqlite3.Error, UnicodeError, MemoryError) as error:
            why = f"not finished within {seconds:g} s" if time.monotonic() >= end else str(error)
            raise _damaged(path, why) from error


def deadline(connection, seconds: float) -> AbstractContextManager[threading.Event]:
    """Interrupts `connection` (sqlite3 or DuckDB) after `seconds`; the event says that it did."""
    return after(seconds, connection.interrupt)


def quoted(identifier: str) -> str:
    """A table or column name as SQL, whatever characters it has."""
    return '"' + identifier.replace('"', '""') + '"'


def tables(connection: sqlite3.Connection) -> list[str]:
    """Names of the ordinary tables. Virtual tables would run code of the file's choosing: left out."""
    rows = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' "
        "AND typeof(name) = 'text' AND rootpage > 0 AND sql NOT LIKE 'create virtual%' ORDER BY rowid"
    )
    return [name for (name,) in rows]


def objects(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """(kind, name) of every table, view, trigger and index, without SQLite's own tables and indexes."""
    rows = connection.execute(
        "SELECT type, name FROM sqlite_master WHERE typeof(name) = 'text' "
        "AND NOT (type IN ('table', 'index') AND name LIKE 'sqlite\\_%' ESCAPE '\\') ORDER BY rowid"
    )
    return [(str(kind), name) for kind, name in rows]


def integrity(path: Path, seconds: float = 60.0) -> dict:
    """What can be said about a database file without changing it.

    Returns {"integrity": "ok" | what is wrong, "tables": {name: rows}}. Never raises for a bad file.
    """
    try:
        with opened(path, seconds) as connection:
            return {"integrity": _check(connection), "tables": _counts(connection)}
    except LabError as error:
        return {"integrity": error.message, "tables": {}}


def _check(connection: sqlite3.Connection) -> str:
    found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(20)")]
    return harmless("; ".join(found)[:2000])


def _counts(connection: sqlite3.Connection) -> dict[str, int]:
    return {
        name: connection.execute(f"SELECT COUNT(*) FROM {quoted(name)}").fetchone()[0]
        for name in tables(connection)
    }


def _check_header(path: Path) -> None:
    if path.is_symlink() or not path.is_file():
        raise LabError(f"there is no database at {path}", "`lab runs` lists the collected runs", NOT_READY)
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise _damaged(path, "it does not begin as an SQLite file")


def _connect(path: Path, scratch: Path) -> sqlite3.Connection:
    wal = path.with_name(path.name + "-wal")
    immutable = not wal.exists()
    if not immutable:
        if not wal.is_file():
            raise _damaged(path, f"{wal.name} beside it is no regular file")
        shutil.copyfile(wal, scratch / wal.name)
        path = Path(shutil.copyfile(path, scratch / path.name))
    uri = path.resolve().as_uri() + ("?mode=ro&immutable=1" if immutable else "?mode=rw")
    connection = sqlite3.connect(uri, uri=True, timeout=5.0)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    connection.execute("PRAGMA query_only = ON")
    return connection


def _damaged(path: Path, why: str) -> LabError:
    return LabError(
        f"{path} is damaged: {harmless(' '.join(why.split()))[:400]}",
        "mirror.db beside it is the second copy; `lab verify` says what else of the run does not hold",
        EVIDENCE,
    )
