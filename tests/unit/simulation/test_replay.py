"""UNIT: a recorded run played again: the same replies and outputs, nothing executed, other settings taken."""

import sqlite3

import pytest

from labkit.errors import LabError
from labkit.simulation import Script, simulate

SLOW = {"median_seconds": 12.0, "spread": 0.4, "longest_seconds": 60.0}
TALK = (
    "SELECT step_number, elapsed_seconds, phase, event_type, tool_name, command_or_input, guard_status, "
    "CASE WHEN sanitized_output LIKE '%<untrusted%' THEN '' ELSE sanitized_output END "
    "FROM execution_logs WHERE event_type NOT IN ('RUN_STARTED', 'RUN_SEALED') ORDER BY id"
)


@pytest.fixture(scope="module")
def recorded(memory_folder):
    folder = memory_folder / "recorded"
    faults = [{"kind": "server", "probability": 0.1}, {"kind": "empty", "probability": 0.1}]
    script = Script.from_dict({"latency": SLOW, "faults": faults, "block_probability": 0.4})
    return simulate(script, seed=3, minutes=14, folder=folder)


@pytest.fixture
def database(recorded):
    return recorded.folder / "telemetry/sealed/run.db"


def test_a_replay_says_and_does_what_was_recorded_when_it_was_recorded(recorded, database, memory):
    again = simulate(seed=99, replay=database, folder=memory / "again")
    assert again.query(TALK) == recorded.query(TALK)
    assert again.replayed["played"] == again.replayed["attempts"] > 20
    assert again.summary["inspector_blocks"] == recorded.summary["inspector_blocks"] > 0


def test_a_session_that_was_killed_and_went_on_is_replayed_with_the_call_that_the_crash_cut(database, memory):
    """As a record has it: the call's one result says so, and the session goes on."""
    crashed = memory / "crashed.db"
    cut = "interrupted: the harness was restarted during this call; it was not run again"
    with sqlite3.connect(database) as source, sqlite3.connect(crashed) as target:
        source.backup(target)
        target.execute(
            "UPDATE execution_logs SET sanitized_output = ? WHERE id = (SELECT MIN(id) FROM execution_logs "
            "WHERE event_type = 'TOOL_RESULT' AND tool_name = 'execute_shell')",
            (cut,),
        )
        target.execute(
            "INSERT INTO api_requests (step_number, purpose, attempt, status, latency_seconds) "
            "VALUES (2, 'worker', 1, 'interrupted', 3.0)"
        )
    again = simulate(replay=crashed, folder=memory / "again")
    ((said,),) = again.query(
        "SELECT sanitized_output FROM execution_logs WHERE sanitized_output LIKE '%restarted%'"
    )
    assert cut in said
    with sqlite3.connect(database) as db:
        ((steps,),) = db.execute("SELECT MAX(step_number) FROM execution_logs").fetchall()
    assert again.summary["steps"] == steps


WRITTEN = (
    "SELECT 0.5 * COUNT(*) FROM execution_logs AS before WHERE before.id <= execution_logs.id "
    "AND before.event_type = 'TOOL_RESULT' AND before.tool_name = 'write_scratchpad'"
)


@pytest.mark.parametrize(
    "took", ["step_number", f"({WRITTEN})"], ids=["a second a step", "half of one a note"]
)
def test_time_that_neither_model_nor_command_took_passes_in_a_replay_too(database, memory, took):
    """As of a guest in which Python is slow; a phase that begins at a time would begin at another step."""
    slow = memory / "slow.db"
    with sqlite3.connect(database) as source, sqlite3.connect(slow) as target:
        source.backup(target)
        target.execute("CREATE TEMP TABLE later AS SELECT id, " + took + " AS seconds FROM execution_logs")
        target.execute(
            "UPDATE execution_logs SET elapsed_seconds = elapsed_seconds + (SELECT seconds FROM later "
            "WHERE later.id = execution_logs.id)"
        )
    again = simulate(replay=slow, minutes=20, folder=memory / "again")
    reached = "SELECT step_number, MAX(elapsed_seconds) FROM execution_logs WHERE event_type = 'TOOL_RESULT' "
    reached += "GROUP BY step_number ORDER BY step_number"
    with sqlite3.connect(slow) as db:
        recorded = db.execute(reached).fetchall()[:10]
    assert dict(again.query(reached)[:10]) == pytest.approx(dict(recorded), abs=0.01)


def test_a_replay_takes_its_length_and_cap_from_the_record(database, memory):
    again = simulate(replay=database, folder=memory / "again")
    ((told,),) = again.query("SELECT sanitized_output FROM execution_logs WHERE id = 1")
    assert '"minutes": 14' in told


def test_a_replay_under_a_smaller_window_costs_something_else(recorded, database):
    small = simulate(replay=database, settings={"window_max_steps": 4, "window_min_steps": 2})
    assert small.summary["digest_refreshes"] > recorded.summary["digest_refreshes"]
    assert small.summary["prompt_tokens"] != recorded.summary["prompt_tokens"]


def test_a_replay_goes_on_after_the_record_when_it_is_given_more_time(recorded, database):
    longer = simulate(replay=database, minutes=30)
    assert longer.summary["stop_reason"] == "report delivered"
    assert longer.replayed["played"] <= longer.replayed["attempts"]


def test_faults_of_a_script_come_on_top_of_a_record(database):
    script = Script.from_dict(
        {"faults": [{"kind": "html", "steps": [2], "attempts": 1, "purposes": ["worker"]}]}
    )
    again = simulate(script, replay=database)
    assert again.faults["html"] == 1
    assert again.faults["server"] > 0


@pytest.mark.parametrize("kind", ["budget_exhausted", "run_ended"])
def test_a_run_that_the_gateway_ended_ends_there_again(kind, memory):
    script = Script.from_dict({"latency": SLOW, "faults": [{"kind": kind, "from_step": 9}]})
    first = simulate(script, minutes=14, folder=memory / "one")
    again = simulate(replay=memory / "one/telemetry/sealed/run.db", folder=memory / "two")
    assert again.query(TALK) == first.query(TALK)
    assert again.summary["stop_reason"] == first.summary["stop_reason"] != "report delivered"
    statuses = "SELECT purpose, status, cost_usd FROM api_requests WHERE status <> 'ok' ORDER BY id"
    assert again.query(statuses) == first.query(statuses)
    assert first.query(statuses)[0] == ("worker", kind, 0.0)


def test_a_record_without_a_table_of_requests_is_played_too(database, memory):
    old = memory / "old.db"
    with sqlite3.connect(database) as source, sqlite3.connect(old) as target:
        source.backup(target)
        target.execute("DROP TABLE api_requests")
    again = simulate(replay=old)
    assert again.summary["final_report_written"]
    assert again.replayed["played"] > 15


def test_recorded_commands_are_never_run(database, memory):
    trace = memory / "trace"
    changed = memory / "changed.db"
    with sqlite3.connect(database) as source, sqlite3.connect(changed) as target:
        source.backup(target)
        target.execute(
            "UPDATE execution_logs SET command_or_input = ? WHERE event_type = 'TOOL_CALL' AND tool_name = "
            "'execute_shell'",
            (f"touch {trace}",),
        )
    again = simulate(replay=changed, folder=memory / "again")
    assert again.query("SELECT COUNT(*) FROM execution_logs WHERE command_or_input LIKE 'touch %'")[0][0] > 5
    assert not trace.exists()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE execution_logs SET elapsed_seconds = 'x', step_number = 'y' WHERE id % 7 = 0",
        "UPDATE execution_logs SET sanitized_output = x'ff00', command_or_input = x'ff' WHERE id % 5 = 0",
        "UPDATE execution_logs SET sanitized_output = CAST(x'ff41' AS TEXT) WHERE id % 5 = 0",
        'UPDATE execution_logs SET sanitized_output = \'{"minutes": "x", "budget_usd": -3}\' WHERE id = 1',
        "UPDATE execution_logs SET tool_name = NULL, event_type = NULL WHERE id % 3 = 0",
        "UPDATE api_requests SET latency_seconds = 'x', attempt = 'z', timestamp = 7 WHERE id % 7 = 0",
        "UPDATE api_requests SET latency_seconds = 9e999, purpose = NULL, status = 'odd' WHERE id % 7 = 0",
        "ALTER TABLE execution_logs DROP COLUMN guard_reason",
        "ALTER TABLE api_requests DROP COLUMN detail",
    ],
)
def test_a_record_with_anything_in_it_is_played_to_a_seal(database, memory, change):
    """A guest's root may write what it likes into run.db; another version of the kit has other columns."""
    odd = memory / "odd.db"
    with sqlite3.connect(database) as source, sqlite3.connect(odd) as target:
        source.backup(target)
        target.execute(change)
    again = simulate(replay=odd, minutes=14)
    assert again.summary["status"] == "sealed" and again.summary["final_report_written"]


def test_a_record_is_read_under_any_name_and_left_as_it_was(database, memory):
    folder = memory / "a#b?c%20"
    folder.mkdir()
    copy = folder / "run.db"
    copy.write_bytes(database.read_bytes())
    assert simulate(replay=copy, minutes=2).replayed["played"] > 0
    assert list(memory.iterdir()) == [folder] and list(folder.iterdir()) == [copy]


def test_a_database_without_events_is_refused_in_a_sentence(memory):
    with sqlite3.connect(memory / "empty.db") as db:
        db.execute("CREATE TABLE execution_logs (id INTEGER)")
    with pytest.raises(LabError, match="it has no events"):
        simulate(replay=memory / "empty.db")


def test_what_is_no_record_is_refused_in_a_sentence(memory):
    (memory / "run.db").write_text("no database")
    with pytest.raises(LabError, match="can't be replayed"):
        simulate(replay=memory / "run.db")
