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
from labkit.gateway import chain
from labkit.gateway.ledger import COLUMNS
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
