"""TESTS: a guest that lies while it runs: its rows go the real way, into ledger, run.db and mirror alike.

The way is POST /v1/events of the real app, with the run's token, in batches as the harness sends them.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from gateway_in_process import TOKEN, InProcess, ScriptedProvider, answer
from loopback import gateway_config

from harness.gateway import BATCH
from labkit.gateway import chain, commands
from labkit.gateway.rows import COLUMNS
from labkit.verification.verify import text

ROUNDS = range(8)  # of six kinds of lie; with the two about verdicts fifty


class Liar:
    """Replays an honest session into a ledger of its own, with the events that the lie leaves."""

    def __init__(self, copy) -> None:
        self.copy = copy
        records = copy.records()
        self.opened = records[0]["body"]
        self.order = [(r["kind"], r["body"]) for r in records if r["kind"] in ("event", "exchange")]
        self.events = [body for kind, body in self.order if kind == "event"]
        self.obeyed = True  # what is asked of the guest is acknowledged by it

    def places(self, word: str) -> list[int]:
        return [n for n, row in enumerate(self.events) if row["event_type"] == word]

    def tell(self) -> tuple[str, str]:
        """Everything made anew as the guest tells it; (kind, record) of what is found first."""
        gateway = self.copy.folder / "gateway"
        for name in ("ledger.jsonl", "ledger.head", "events.jsonl", "requests.jsonl"):
            (gateway / name).unlink()
        rows = [{**row, "id": number} for number, row in enumerate(self.events, start=1)]
        config = gateway_config(TOKEN, **self.opened)
        channel = InProcess(gateway, config, ScriptedProvider(lambda _: answer()))
        for kind, body in self.order:
            if kind == "exchange":
                channel.ledger.exchange(body)
        for start in range(0, len(rows), BATCH):
            push = {"run_id": self.opened["run_id"], "events": rows[start : start + BATCH]}
            assert channel.post("/v1/events", push).json() == {"watermark": min(start + BATCH, len(rows))}
        handed = commands.Deliveries(gateway, lambda item: channel.ledger.note("command", **item))
        handed.hand_out(0)
        if self.obeyed:
            handed.acknowledge(handed.delivered)
        channel.ledger.close()
        for database in ("run.db", "mirror.db"):
            _put(self.copy.folder / database, rows)
        manifest = json.loads((self.copy.folder / "manifest.json").read_text())
        manifest["ledger"] = vars(chain.end_of(gateway))
        (self.copy.folder / "manifest.json").write_text(json.dumps(manifest))
        self.copy.seal()
        report = self.copy.examine()
        assert report.first, text(report)
        return report.first.kind, report.first.record

    def ask(self, name: str, **args: object) -> str:
        """A person asks; returns the line of the COMMAND event that an honest harness makes of it."""
        gateway = self.copy.folder / "gateway"
        number = commands.append(gateway, name, args, who={"user": "ada"}, why="see")
        return json.dumps(commands.after(gateway, number - 1)[0], ensure_ascii=False)

    def insert(self, place: int, word: str, **values: object) -> None:
        known = ("step_number", "timestamp", "elapsed_seconds", "phase")
        row = dict.fromkeys(COLUMNS) | {name: self.events[place][name] for name in known}
        self.events.insert(place, row | {"event_type": word, **values})

    def change(self, place: int, **values: object) -> None:
        self.events[place] = {**self.events[place], **values}

    def seal_says(self, **values: object) -> None:
        """The same lie in the ledger's RUN_SEALED, in session_state and in summary.json."""
        said = json.loads(self.events[-1]["sanitized_output"]) | values
        self.change(-1, sanitized_output=json.dumps(said))
        file = self.copy.folder / "summary.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | values))
        text = json.dumps(said).replace("'", "''")
        for database in ("run.db", "mirror.db"):
            self.copy.sql(
                f"UPDATE session_state SET value = '{text}' WHERE key = 'summary'", database=database
            )


def _put(database: Path, rows: list[dict]) -> None:
    connection = sqlite3.connect(database)
    connection.execute("DELETE FROM execution_logs")
    marks = ", ".join("?" * len(COLUMNS))
    values = [[row[name] for name in COLUMNS] for row in rows]
    connection.executemany(f"INSERT INTO execution_logs ({', '.join(COLUMNS)}) VALUES ({marks})", values)
    connection.commit()
    connection.close()


@pytest.fixture
def liar(honest, tmp_path, copy) -> Liar:
    return Liar(copy)


@pytest.mark.parametrize("round_", ROUNDS)
def test_a_command_that_no_completion_asked_for_is_altered(liar, round_):
    place = liar.places("TOOL_CALL")[round_]
    liar.events[place] = {**liar.events[place], "command_or_input": "uname -a; true harmless"}
    assert liar.tell() == ("altered", f"event {place + 1}")


@pytest.mark.parametrize("round_", ROUNDS)
def test_a_result_that_no_model_was_shown_is_altered(liar, round_):
    place = liar.places("TOOL_RESULT")[round_]
    liar.events[place] = {**liar.events[place], "sanitized_output": "all tests passed"}
    assert liar.tell() == ("altered", f"event {place + 1}")


@pytest.mark.parametrize("round_", ROUNDS)
def test_a_call_put_behind_the_real_ones_is_forged(liar, round_):
    place = liar.places("TOOL_RESULT")[round_]
    call = {**liar.events[liar.places("TOOL_CALL")[round_]], "command_or_input": "true"}
    liar.events[place + 1 : place + 1] = [call, {**liar.events[place], "sanitized_output": "ok"}]
    assert liar.tell() == ("forged", f"event {place + 2}")


@pytest.mark.parametrize("round_", ROUNDS)
def test_a_step_that_never_was_is_forged(liar, round_):
    place = liar.places("WORKER_THOUGHT")[round_]
    step = [
        {
            **liar.events[place],
            "sanitized_output": "I will look around.",
            "prompt_tokens": 7,
            "completion_tokens": 7,
        },
        {
            **liar.events[place + 1],
            "event_type": "TOOL_CALL",
            "tool_name": "execute_shell",
            "command_or_input": "id",
        },
        {**liar.events[place + 1], "event_type": "TOOL_RESULT", "sanitized_output": "uid=0"},
    ]
    liar.events[place:place] = step
    assert liar.tell() == ("forged", f"event {place + 1}")


@pytest.mark.parametrize("round_", ROUNDS)
def test_a_step_kept_silent_is_missing(liar, round_):
    calls, results = liar.places("TOOL_CALL"), liar.places("TOOL_RESULT")
    first, last = calls[round_], results[round_]
    del liar.events[last], liar.events[first]
    assert liar.tell()[0] == "missing"


@pytest.mark.parametrize("round_", ROUNDS)
def test_a_thought_with_other_words_or_figures_is_altered(liar, round_):
    place = liar.places("WORKER_THOUGHT")[round_]
    change = [{"sanitized_output": "Nothing to see."}, {"cost_usd": 0.0}, {"cached_tokens": 0}][round_ % 3]
    liar.events[place] = {**liar.events[place], **change}
    assert liar.tell() == ("altered", f"event {place + 1}")


def test_a_verdict_turned_round_is_altered(liar):
    place = liar.places("INSPECTOR_DECISION")[0]
    other = {"ALLOW": "BLOCK", "BLOCK": "ALLOW"}[liar.events[place]["guard_status"]]
    liar.events[place] = {**liar.events[place], "guard_status": other}
    assert liar.tell() == ("altered", f"event {place + 1}")


def test_a_verdict_that_no_inspector_gave_is_forged(liar):
    place = liar.places("INSPECTOR_DECISION")[0]
    made_up = {**liar.events[place], "prompt_tokens": 5, "completion_tokens": 5, "guard_status": "ALLOW"}
    liar.events.insert(place, made_up)
    assert liar.tell() == ("forged", f"event {place + 1}")


def test_the_liars_own_way_finds_nothing_in_an_honest_session(liar):
    with pytest.raises(AssertionError, match="holds"):
        liar.tell()


def test_commands_as_they_were_given_are_no_lie(liar):
    liar.insert(5, "COMMAND", command_or_input=liar.ask("say", text='caf\u00e9 "\n'))
    liar.insert(9, "COMMAND", command_or_input=liar.ask("extend", minutes=5))
    with pytest.raises(AssertionError, match="holds"):
        liar.tell()


def test_a_command_that_nobody_gave_is_forged(liar):
    line = json.dumps({"id": 1, "name": "say", "args": {"text": "delete all"}, "who": {"user": "ada"}})
    liar.insert(5, "COMMAND", command_or_input=line)
    assert liar.tell() == ("forged", "event 6")


def test_a_command_with_other_words_than_were_given_is_altered(liar):
    line = liar.ask("say", text="look at the tests")
    liar.insert(5, "COMMAND", command_or_input=line.replace("tests", "keys"))
    assert liar.tell() == ("altered", "event 6")


def test_a_command_that_is_told_twice_is_forged(liar):
    line = liar.ask("extend", minutes=5)
    liar.insert(5, "COMMAND", command_or_input=line)
    liar.insert(7, "COMMAND", command_or_input=line)
    assert liar.tell() == ("forged", "event 8")


def test_a_command_that_was_acknowledged_and_is_not_in_the_record_is_missing(liar):
    liar.ask("finish")
    assert liar.tell() == ("missing", "command 1")


def test_a_command_that_came_too_late_to_be_obeyed_accuses_nobody(liar):
    liar.ask("finish")
    liar.obeyed = False
    with pytest.raises(AssertionError, match="holds"):
        liar.tell()


def test_a_verdict_without_figures_that_no_inspector_gave_is_forged(liar):
    place = liar.places("INSPECTOR_DECISION")[0]
    none = dict.fromkeys(("prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd"))
    liar.events.insert(place, {**liar.events[place], **none, "guard_status": "ALLOW"})
    assert liar.tell() == ("forged", f"event {place + 1}")


@pytest.mark.parametrize("which", [0, -1])
def test_a_verdict_kept_silent_is_missing(liar, which):
    del liar.events[liar.places("INSPECTOR_DECISION")[which]]
    kind, record = liar.tell()
    assert kind == "missing" and record.startswith("exchange")


def keep_silent(liar, count: int) -> None:
    """The first verdicts are told by no event, and the figures of the run agree with that."""
    for place in reversed(liar.places("INSPECTOR_DECISION")[:count]):
        del liar.events[place]
    told = [liar.events[place]["guard_status"] for place in liar.places("INSPECTOR_DECISION")]
    liar.seal_says(inspector_reviews=len(told), inspector_blocks=told.count("BLOCK"))


def crash(liar, count: int) -> None:
    boot = liar.opened.get("boot_id") or "unknown"
    for _ in range(count):
        liar.insert(9, "RESUMED", sanitized_output=f"goes on after step 1; boot {boot}")


def fail(liar, count: int, told: int) -> None:
    """Attempts in api_requests that failed; `told` of them by an event as well."""
    names = "step_number, purpose, attempt, model, status"
    row = f"INSERT INTO api_requests ({names}) VALUES (1, 'inspector', 1, 'm', 'deadline')"
    for database in ("run.db", "mirror.db"):
        liar.copy.sql(*[row] * count, database=database)
    for _ in range(told):
        liar.insert(9, "API_ERROR", sanitized_output="inspector call, attempt 1: deadline: too late")
    (requests,) = liar.copy.ask("SELECT COUNT(*), SUM(cost_usd IS NULL) FROM api_requests")
    liar.seal_says(api_requests=requests[0], unknown_cost_requests=requests[1])


@pytest.mark.parametrize("excuse", [lambda liar: crash(liar, 5), lambda liar: fail(liar, 5, told=1)])
def test_more_verdicts_kept_silent_than_the_host_saw_starts_or_failed_calls_are_missing(liar, excuse):
    keep_silent(liar, 2)
    excuse(liar)
    kind, record = liar.tell()
    assert kind == "missing" and record.startswith("exchange")


@pytest.mark.parametrize(
    ("excuse", "words"),
    [
        (lambda liar: crash(liar, 1), "1 verdict that no event tells, excused by what it tells: 1 restart"),
        (
            lambda liar: fail(liar, 1, told=1),
            "1 verdict that no event tells, excused by what it tells: 1 failed call",
        ),
    ],
)
def test_a_verdict_that_a_crash_or_a_failed_call_took_is_told_of(liar, excuse, words):
    keep_silent(liar, 1)
    excuse(liar)
    with pytest.raises(AssertionError, match="holds"):
        liar.tell()
    assert words in liar.copy.examine().asserted


def test_a_session_that_lost_no_verdict_says_nothing_of_excuses(copy):
    assert not any("excused" in line for line in copy.examine().asserted)


@pytest.mark.parametrize("told", [{"budget_usd": 9999.0}, {"minutes": 600.0}, {"inspector_model": "no/such"}])
def test_a_start_that_tells_of_other_limits_or_models_than_the_hosts_is_altered(liar, told):
    said = json.loads(liar.events[0]["sanitized_output"])
    liar.change(0, sanitized_output=json.dumps(said | told))
    assert liar.tell() == ("altered", "event 1")


def test_a_session_that_never_began_is_missing_its_start(liar):
    """As telemetry of another start would be, without the row that tells of it."""
    liar.change(0, event_type="BACKUP")
    kind, record = liar.tell()
    assert (kind, record) == ("missing", f"event {liar.places('WORKER_THOUGHT')[0] + 1}")


def test_a_second_start_in_the_midst_of_the_work_is_forged(liar):
    place = liar.places("TOOL_RESULT")[3]
    liar.events.insert(place, dict(liar.events[0]))
    assert liar.tell() == ("forged", f"event {place + 1}")


@pytest.mark.parametrize("name", ["cost_usd", "prompt_tokens", "inspector_blocks", "nudges"])
def test_a_seal_that_adds_up_to_something_else_than_the_record_is_altered(liar, name):
    true = json.loads(liar.events[-1]["sanitized_output"])[name]
    liar.seal_says(**{name: true + 1})
    assert liar.tell() == ("altered", f"event {len(liar.events)}")


@pytest.mark.parametrize("word", ["RUN_SEALED", "BACKUP"])
def test_an_event_behind_the_seal_is_forged(liar, word):
    liar.events.append({**liar.events[-1], "event_type": word})
    assert liar.tell() == ("forged", f"event {len(liar.events)}")


def test_an_event_that_tells_no_time_is_altered(liar):
    liar.change(10, timestamp="yesterday")
    assert liar.tell() == ("altered", "event 11")
