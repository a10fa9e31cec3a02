"""HOST: asks a collected run a question. Owns the in-memory DuckDB and what a query may do there.

run.db is read with sqlite3 (DuckDB's own SQLite reader is a download) and copied into memory.
The connection is then locked: no files, no network, no settings, no writes, one statement.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import duckdb

from labkit.analysis import columns, questions, sqlite_file
from labkit.analysis.text import harmless
from labkit.errors import EVIDENCE, USAGE, LabError

# What a record must have to be asked the reference run's questions: table -> columns.
REFERENCE_TABLES = {
    "execution_logs": (
        *("id", "step_number", "timestamp", "elapsed_seconds", "phase", "event_type", "tool_name"),
        *("command_or_input", "sanitized_output", "guard_status", "guard_reason"),
        *("prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd"),
    ),
    "file_registry": ("id", "timestamp", "file_path", "file_type", "version"),
    "session_state": ("key", "value", "updated_at"),
}
# Columns that records of an earlier kit lack: table -> name and type. They are empty there.
ADDED_LATER = {"api_requests": ("cost_source", "VARCHAR")}
TIMEOUT_SECONDS = 30.0
MAX_ROWS = 1_000_000
MEMORY_LIMIT = "2GB"

# The run's tables are loaded under these already: a hostile one may be endless.
_AT_START = {
    **dict.fromkeys(("autoinstall_known_extensions", "autoload_known_extensions"), "false"),
    "memory_limit": MEMORY_LIMIT,
    "temp_directory": "",
}
# In this order: nothing can be set any more after the last.
_LOCK = (
    ("python_enable_replacements", "false"),
    ("memory_limit", f"'{MEMORY_LIMIT}'"),
    ("temp_directory", "''"),
    ("enable_external_access", "false"),
    ("lock_configuration", "true"),
)
# What DuckDB calls by one name.
_KINDS = {duckdb.StatementType.LOAD: "LOAD or INSTALL"}
# DuckDB always guesses, were it one of its own tables.
_GUESS = re.compile(r'with name (?P<typed>\S+) does not exist! (?P<asks>Did you mean "(?P<guess>[^"]+)"\?)')


class Result(NamedTuple):
    """An answer: unique column names, and rows as tuples of Python values."""

    columns: list[str]
    rows: list[tuple]


class Run:
    """A run in memory. `notes` are sentences about values of run.db that could not be read."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, path: Path, notes: tuple[str, ...]) -> None:
        self._connection = connection
        self.path = path
        self.notes = notes

    def query(self, sql_or_name: str, timeout: float = TIMEOUT_SECONDS) -> Result:
        """The answer to a named question or to one read-only statement; timeout in seconds.

        Raises LabError (USAGE) for an unknown name, bad SQL, anything that is not a question,
        a time-out, and more than MAX_ROWS rows.
        """
        if questions.is_name(sql_or_name):
            sql_or_name = questions.load(sql_or_name).sql
        statement = self._only_statement(sql_or_name)
        try:
            with sqlite_file.deadline(self._connection, timeout) as late:
                return self._answer(statement)
        except duckdb.InterruptException as error:
            raise _refused(f"the query was stopped after {timeout:g} s", "add a WHERE or a LIMIT") from error
        except RuntimeError as error:  # DuckDB's word for Ctrl-C
            if isinstance(error.__context__, KeyboardInterrupt) or "interrupted" in str(error):
                raise KeyboardInterrupt from error
            raise
        except duckdb.Error as error:
            if late.is_set():
                raise _refused(f"the query was stopped after {timeout:g} s") from error
            raise _refused(f"the query failed: {_first_lines(error)}") from error

    def _only_statement(self, sql: str) -> duckdb.Statement:
        try:
            sql.encode()  # DuckDB takes a lone surrogate for a wrong type
            statements = self._connection.extract_statements(sql)
        except UnicodeError as error:
            raise _refused("the query cannot be read: it is not text in UTF-8") from error
        except duckdb.Error as error:
            raise _refused(f"the query cannot be read: {_first_lines(error)}") from error
        if not statements:
            raise _refused("the query is empty")
        if len(statements) != 1:
            raise _refused(f"one statement at a time, here are {len(statements)}")
        kind = statements[0].type
        if kind not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
            raise _refused(
                f"a run is read-only: {_KINDS.get(kind, kind.name)} is refused",
                "SELECT, WITH, EXPLAIN, DESCRIBE, SHOW and SUMMARIZE are answered",
            )
        return statements[0]

    def _answer(self, statement: duckdb.Statement) -> Result:
        self._connection.execute("BEGIN TRANSACTION READ ONLY")
        try:
            cursor = self._connection.execute(statement)
            names = _unique([column[0] for column in cursor.description])
            rows = cursor.fetchmany(MAX_ROWS + 1)
        finally:
            # A statement that failed has ended the transaction already.
            with suppress(duckdb.Error):
                self._connection.execute("ROLLBACK")
        if len(rows) > MAX_ROWS:
            raise _refused(f"the answer has more than {MAX_ROWS:,} rows", "add a LIMIT, or count instead")
        return Result(names, rows)


@contextmanager
def opened(run_dir: Path) -> Iterator[Run]:
    """A collected run (`runs/<run_id>`, or a database file itself) loaded into memory.

    Raises LabError: no run.db (NOT_READY), damaged or without our tables (EVIDENCE).
    """
    path = Path(run_dir)
    path = path / "run.db" if path.is_dir() else path
    connection = duckdb.connect(":memory:", config=_AT_START)
    try:
        notes = _load(path, connection)
        for name, value in _LOCK:
            connection.execute(f"SET {name} = {value}")
        yield Run(connection, path, tuple(notes))
    finally:
        connection.close()


def query(run_dir: Path, sql_or_name: str, timeout: float = TIMEOUT_SECONDS) -> Result:
    """One question to one run; see `Run.query` and `opened`. `list` answers with the named questions."""
    if sql_or_name.strip() == "list":
        return Result(
            ["name", "question"], [(q.name, q.sentence) for q in map(questions.load, questions.names())]
        )
    if questions.is_name(sql_or_name):
        questions.load(sql_or_name)  # a misspelt name should not have to wait for the run to load
    with opened(run_dir) as run:
        return run.query(sql_or_name, timeout)


def _load(path: Path, target: duckdb.DuckDBPyConnection) -> list[str]:
    with sqlite_file.opened(path) as source:
        names = sqlite_file.tables(source)
        _check_reference(path, {name: columns.of_table(source, name) for name in names})
        try:
            notes = [note for name in names for note in columns.copy_table(source, target, name)]
            _complete(target, names)
            return notes
        except duckdb.Error as error:
            raise LabError(f"{path} cannot be loaded: {_first_lines(error)}", "", EVIDENCE) from error


def _complete(target: duckdb.DuckDBPyConnection, names: list[str]) -> None:
    for table, (column, kind) in ADDED_LATER.items():
        if table in names:
            target.execute(f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {column} {kind}")


def _check_reference(path: Path, tables: dict[str, list[columns.Column]]) -> None:
    """Raises LabError (EVIDENCE) for a database of something else, or of another version of the kit."""
    for table, wanted in REFERENCE_TABLES.items():
        present = {column.name.lower() for column in tables.get(table, [])}
        absent = [name for name in wanted if name not in present]
        if absent:
            what = f"column {absent[0]} in {table}" if present else f"table {table}"
            kind = "a record that this version of the kit can read" if present else "the record of a run"
            maybe = "; another version wrote it, or another program" if present else ""
            raise LabError(
                f"{path} is not {kind}: it has no {what}{maybe}",
                "`lab runs` lists the collected runs; `sqlite3 -readonly` shows what this file is",
                EVIDENCE,
            )


def _refused(message: str, hint: str = "") -> LabError:
    named = ", ".join(questions.names())
    default = f'`lab query "DESCRIBE execution_logs"` shows the columns; by name: {named}'
    return LabError(message, hint or default, USAGE)


def _first_lines(error: Exception) -> str:
    """DuckDB's own sentence without the excerpt of the query; its guess only where that is near."""
    said = " ".join(str(error).split("\n\nLINE ")[0].split())
    guessed = _GUESS.search(said)
    if guessed and not difflib.get_close_matches(guessed["typed"], [guessed["guess"]]):
        said = said[: guessed.start("asks")].rstrip()
    return harmless(said[:400])


def _unique(names: list[str]) -> list[str]:
    """Column names as keys: a second `n` becomes `n_2`."""
    taken: list[str] = []
    for name in names:
        candidate, count = name, 1
        while candidate in taken:
            count += 1
            candidate = f"{name}_{count}"
        taken.append(candidate)
    return taken
