"""TESTS: a collected run answers questions and cannot be changed by one."""

import os
import sqlite3
import stat

import pytest
import synthetic_run

from labkit.analysis import load
from labkit.errors import LabError


def test_a_named_question_and_free_sql_are_both_answered(run_dir, counts):
    assert dict(load.query(run_dir, "tool-calls").rows) == dict(counts.tools)
    columns, rows = load.query(run_dir, "SELECT COUNT(*) AS n, MAX(id) FROM execution_logs;")
    assert columns[0] == "n"
    assert rows == [(sum(counts.events.values()),) * 2]


def test_the_gate_counts_events_and_the_reviews_count_decisions(run_dir, counts):
    reviews = sum(row[1] for row in load.query(run_dir, "inspector_reviews").rows)
    gate = sum(row[1] for row in load.query(run_dir, "inspector_gate").rows)
    assert reviews == counts.events["INSPECTOR_DECISION"] < gate


def test_every_table_of_the_record_is_there_with_its_types(run_dir):
    tables = {row[0] for row in load.query(run_dir, "SHOW TABLES").rows}
    added = {"api_requests", "prompts", "workspace_files"}
    assert tables == {"execution_logs", "file_registry", "session_state"} | added
    types = dict(row[:2] for row in load.query(run_dir, "DESCRIBE execution_logs").rows)
    assert (types["id"], types["cost_usd"], types["timestamp"]) == ("BIGINT", "DOUBLE", "VARCHAR")


@pytest.mark.parametrize(
    "sql",
    [
        "WITH t AS (SELECT 1 AS a) SELECT a FROM t",
        "EXPLAIN SELECT * FROM execution_logs",
        "SUMMARIZE file_registry",
        "-- a remark\nSELECT ';' AS semicolon -- and another",
        "SELECT 1 AS a, 2 AS a",
    ],
)
def test_questions_of_every_permitted_kind_are_answered(run_dir, sql):
    columns, rows = load.query(run_dir, sql)
    assert rows and len(set(columns)) == len(columns) == len(rows[0])


WRITES = [
    "COPY execution_logs TO 'out.csv'",
    "COPY (SELECT 1) TO 'out.parquet'",
    "ATTACH 'out.db' AS other",
    "ATTACH 'run.db' AS other (TYPE sqlite)",
    "EXPORT DATABASE 'out'",
    "IMPORT DATABASE '/tmp'",
    "INSTALL sqlite",
    "LOAD sqlite",
    "PRAGMA table_info('execution_logs')",
    "PRAGMA enable_profiling='json'",
    "SET enable_external_access = true",
    "RESET lock_configuration",
    "CALL pragma_version()",
    "CREATE TABLE t (a INT)",
    "CREATE TEMP TABLE t AS SELECT 1",
    "CREATE MACRO m() AS 1",
    "INSERT INTO session_state VALUES ('a', 'b', 'c')",
    "UPDATE execution_logs SET phase = 'x'",
    "DELETE FROM execution_logs",
    "DROP TABLE execution_logs",
    "ROLLBACK",
    "CHECKPOINT",
    "VACUUM",
    "EXPLAIN ANALYZE DELETE FROM execution_logs",
    "EXPLAIN ANALYZE COPY execution_logs TO 'out.csv'",
    "WITH gone AS (DELETE FROM execution_logs RETURNING *) SELECT * FROM gone",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM sqlite_scan('run.db', 'execution_logs')",
    "SELECT * FROM query('COPY execution_logs TO ''out.csv''')",
    "SELECT * FROM rows",
    "SELECT getenv('HOME')",
    "SELECT 1; SELECT 2",
    "SELECT 1; DROP TABLE execution_logs",
    ";",
    "-- nothing",
    "SELEC 1",
    "SELECT * FROM nowhere",
    "SELECT 'open",
    "SELECT '\ud800'",
    "SELECT error('\x1b[31m')",
]


@pytest.mark.parametrize("sql", WRITES)
def test_what_is_no_question_is_refused_and_leaves_nothing(run_dir, tmp_path, monkeypatch, sql):
    monkeypatch.chdir(tmp_path)
    rows = [1]  # DuckDB would read a Python variable of that name
    with load.opened(run_dir) as run:
        before = run.query("SELECT COUNT(*) FROM execution_logs")
        with pytest.raises(LabError) as caught:
            run.query(sql)
        assert run.query("SELECT COUNT(*) FROM execution_logs") == before
    assert caught.value.code == 2 and caught.value.hint
    assert caught.value.message.isprintable()
    assert os.listdir(tmp_path) == [] and rows == [1]


@pytest.mark.parametrize(
    "sql",
    [
        "WITH RECURSIVE r AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM r) SELECT COUNT(*) FROM r",
        "SELECT COUNT(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range * b.range % 7 = 3",
    ],
)
def test_an_endless_query_is_stopped_and_the_next_one_answered(run_dir, sql):
    with load.opened(run_dir) as run:
        with pytest.raises(LabError, match="stopped after 0.3 s"):
            run.query(sql, timeout=0.3)
        assert run.query("SELECT 1").rows == [(1,)]


def test_an_answer_without_end_is_refused_in_words(run_dir, monkeypatch):
    monkeypatch.setattr(load, "MAX_ROWS", 1000)
    with pytest.raises(LabError, match="more than 1,000 rows"):
        load.query(run_dir, "SELECT * FROM range(5000)")


@pytest.mark.parametrize("asked", ["frobnicate", "xyz", "nothing_of_the_kind"])
def test_a_word_that_is_near_no_name_gets_the_list_and_no_guess(run_dir, asked):
    with pytest.raises(LabError, match="there is no question named") as caught:
        load.query(run_dir, asked)
    assert "did you mean" not in caught.value.hint and "tool_calls" in caught.value.hint


@pytest.mark.parametrize("asked", ["SELECT", "from ", "With"])
def test_a_word_that_sql_begins_with_is_answered_as_sql(run_dir, asked):
    with pytest.raises(LabError, match="the query (cannot be read|failed)"):
        load.query(run_dir, asked)


def test_a_table_is_guessed_only_where_its_name_is_near(run_dir):
    with pytest.raises(LabError, match='Did you mean "execution_logs"'):
        load.query(run_dir, "SELECT * FROM execution_log")
    with pytest.raises(LabError) as caught:
        load.query(run_dir, "SELECT * FROM nowhere")
    assert caught.value.message.endswith("Table with name nowhere does not exist!")


def test_a_misspelt_name_gets_the_nearest_and_the_list(run_dir):
    with pytest.raises(LabError) as caught:
        load.query(run_dir, "tool_cals")
    assert caught.value.message == "there is no question named 'tool_cals'"
    assert "did you mean `lab query tool_calls`?" in caught.value.hint
    assert "files_written" in caught.value.hint


def test_list_names_the_questions_with_their_sentences(run_dir):
    columns, rows = load.query(run_dir, "list")
    assert columns == ["name", "question"]
    assert ("event_types", "What kinds of events make up the record?") in rows


def test_reading_leaves_the_folder_as_it_was_even_where_nothing_can_be_written(run_dir, tmp_path):
    folder, _ = synthetic_run.build(tmp_path, steps=4)
    connection = sqlite3.connect(folder / "run.db")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    before = snapshot(folder)
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    assert load.query(folder, "event_types").rows
    folder.chmod(0o755)
    assert snapshot(folder) == before


def test_rows_that_stand_only_in_a_wal_file_are_read_too(tmp_path):
    folder, counts = synthetic_run.build(tmp_path, steps=4)
    writer = sqlite3.connect(folder / "run.db")
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("INSERT INTO execution_logs (event_type) VALUES ('GUARD')")
    writer.commit()
    before = snapshot(folder)
    assert ("GUARD", 1) in load.query(folder, "event_types").rows
    assert snapshot(folder) == before
    writer.close()


def snapshot(folder):
    return {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in folder.iterdir() if p.is_file()}


def test_values_of_the_wrong_type_are_nulls_with_a_note(tmp_path):
    folder, counts = synthetic_run.build(tmp_path, steps=4)
    connection = sqlite3.connect(folder / "run.db")
    connection.execute(
        "INSERT INTO execution_logs (prompt_tokens, cost_usd, phase) VALUES ('many', x'00', x'ff41')"
    )
    connection.execute("INSERT INTO execution_logs (prompt_tokens, phase) VALUES (2.0, 7)")
    connection.execute("INSERT INTO execution_logs (prompt_tokens) VALUES (1.5)")
    connection.execute("INSERT INTO execution_logs (phase) VALUES (CAST(x'80616200' AS TEXT))")
    connection.execute('CREATE TABLE "odd "" table" ("a b" , "select" BOOLEAN, c BLOB, d DECIMAL(5,2))')
    connection.execute("""INSERT INTO "odd "" table" VALUES (1, 1, 'text', 2.5)""")
    connection.commit()
    connection.close()
    with load.opened(folder) as run:
        rows = run.query("SELECT prompt_tokens, phase FROM execution_logs ORDER BY id DESC LIMIT 4").rows
        odd = run.query('SELECT * FROM "odd "" table"').rows
        notes = run.notes
    assert rows == [(None, "\ufffdab\x00"), (None, None), (2, "7"), (None, "\ufffdA")]
    assert odd == [("1", 1, b"text", 2.5)]
    assert notes == (
        "execution_logs.prompt_tokens: 2 value(s) are not BIGINT and read as NULL",
        "execution_logs.cost_usd: 1 value(s) are not DOUBLE and read as NULL",
    )


def test_views_and_triggers_of_the_record_are_not_run(tmp_path):
    folder, _ = synthetic_run.build(tmp_path, steps=4)
    connection = sqlite3.connect(folder / "run.db")
    connection.execute(
        "CREATE VIEW v AS WITH RECURSIVE r(a) AS (SELECT 1 UNION ALL SELECT a FROM r) SELECT * FROM r"
    )
    connection.execute("CREATE VIRTUAL TABLE f USING fts5(x)")
    connection.close()
    with load.opened(folder) as run:
        tables = [row[0] for row in run.query("SHOW TABLES").rows]
    assert "execution_logs" in tables and not {"v", "f"} & set(tables)


def damaged(folder, how):
    path = folder / "run.db"
    content = path.read_bytes()
    path.unlink()
    if how == "empty":
        path.write_bytes(b"")
    elif how == "noise":
        path.write_bytes(os.urandom(4096))
    elif how == "cut":
        path.write_bytes(content[: len(content) // 3])
    elif how == "overwritten":
        path.write_bytes(content[:4096] + os.urandom(len(content) - 4096))
    elif how == "foreign":
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE execution_logs (a)")
    return folder


@pytest.mark.parametrize("how", ["empty", "noise", "cut", "overwritten", "foreign"])
def test_a_record_that_does_not_hold_is_named_with_exit_code_6(tmp_path, how):
    folder = damaged(synthetic_run.build(tmp_path, steps=30)[0], how)
    with pytest.raises(LabError) as caught:
        load.query(folder, "event_types")
    assert caught.value.code == 6
    assert str(folder / "run.db") in caught.value.message and caught.value.hint


def test_a_folder_without_a_record_says_what_to_type(tmp_path):
    with pytest.raises(LabError, match="there is no database at") as caught:
        load.query(tmp_path, "event_types")
    assert "lab runs" in caught.value.hint


def test_a_link_in_the_place_of_the_record_is_not_followed(tmp_path, run_dir):
    (tmp_path / "run.db").symlink_to(run_dir / "run.db")
    with pytest.raises(LabError, match="there is no database at"):
        load.query(tmp_path, "event_types")


def test_a_large_record_keeps_every_row_in_order(tmp_path):
    folder, counts = synthetic_run.build(tmp_path, steps=4)
    connection = sqlite3.connect(folder / "run.db")
    connection.executemany("INSERT INTO session_state (key) VALUES (?)", ((str(n),) for n in range(45_000)))
    connection.commit()
    connection.close()
    rows = load.query(folder, "SELECT key FROM session_state").rows
    assert [row[0] for row in rows[3:]] == [str(n) for n in range(45_000)]


@pytest.mark.parametrize("sql", ["INSTALL httpfs", "LOAD httpfs"])
def test_what_would_fetch_or_load_an_extension_is_refused_by_its_name(run_dir, sql):
    with pytest.raises(LabError, match="a run is read-only: LOAD or INSTALL is refused"):
        load.query(run_dir, sql)
