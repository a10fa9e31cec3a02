"""TESTS: harness processes that are killed, and whether what is left of them is whole."""

import re
import time

from harness.phases import PHASES

TABLES = ("execution_logs", "file_registry", "api_requests", "session_state", "prompts", "workspace_files")


def phase_of(body):
    return re.search(r"^Phase: (\w+)$", body["messages"][-1]["content"], re.M).group(1)


def kill(process):
    process.kill()
    process.wait()
    process.stdout.close()


def is_busy(process, gateway, asked):
    return len(gateway.requests) > asked or process.poll() is not None


def wait_until(condition, seconds=90):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not come to that"
        time.sleep(0.01)


def assert_whole(run):
    """No hole, no repetition, no jump back in the record; both copies are equal."""
    rows = run.rows("SELECT id, elapsed_seconds, step_number, phase FROM execution_logs ORDER BY id")
    assert [row[0] for row in rows] == list(range(1, len(rows) + 1))
    assert [row[1] for row in rows] == sorted(row[1] for row in rows)
    assert [row[2] for row in rows] == sorted(row[2] for row in rows)
    order = [phase.name for phase in PHASES]
    assert [row[3] for row in rows] == sorted((row[3] for row in rows), key=order.index)
    calls, results = len(run.events("TOOL_CALL")), len(run.events("TOOL_RESULT"))
    assert calls == results
    for table in TABLES:
        sql = f"SELECT * FROM {table} ORDER BY 1"
        assert run.rows(sql) == run.rows(sql, "mirror/run.db")
