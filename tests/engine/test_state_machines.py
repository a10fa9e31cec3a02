"""ENGINE: hypothesis drives the Worker's memory, the record over crashes, and the watermark."""

import json
import random
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from harness_run import run_settings
from hypothesis import settings as examples
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from scripted_gateway import ScriptedGateway, broken
from struck import MEMORY, SOAK, TABLES

from harness import session
from harness.context import Context
from harness.gateway import BATCH, GatewayLink
from harness.money import Usage
from harness.replies import Reply, ToolCall
from harness.session import Session, from_rows
from harness.settings import from_dict
from harness.steps import as_step, runnable
from harness.telemetry import events
from harness.telemetry.recorder import Recorder
from harness.tools.base import Outcome

PACE = examples(
    max_examples=300 if SOAK else 25,
    stateful_step_count=60,
    deadline=None,
    derandomize=not SOAK,
    database=None,
)
TEXTS = st.text(max_size=30)
ARGUMENTS = st.one_of(st.just('{"path": "x"}'), st.just("{"), st.just("[1]"), TEXTS)
CALLS = st.lists(
    st.builds(ToolCall, TEXTS, st.sampled_from(["read_file", "no_such\x00tool"]), ARGUMENTS), max_size=4
)
REPLIES = st.builds(
    Reply,
    TEXTS,
    CALLS.map(tuple),
    st.sampled_from(["stop", "tool_calls", "length", None]),
    st.just(Usage()),
    st.none(),
)
NUDGES = st.lists(TEXTS.map(lambda text: {"role": "user", "content": text}), max_size=2)


class Memory(RuleBasedStateMachine):
    """Steps come, the window is cut, the digest succeeds or not; each list is sent as it would be."""

    @initialize(least=st.integers(1, 6), more=st.integers(1, 12))
    def begin(self, least, more):
        self.context, self.number = Context("the rules", least + more, least), 0
        self.before: list[dict] = []
        self.kept = Session("r")

    @rule(reply=REPLIES, nudges=NUDGES, digest=st.sampled_from(["", "Decided: A, because of B."]))
    def step(self, reply, nudges, digest):
        self.number += 1
        window = len(self.context.steps)
        if wanted := self.context.drop():
            assert window == self.context.max_steps + 1
            assert len(self.context.steps) == self.context.min_steps
            self.context.digest = digest or self.context.digest
        sent = self.context.outgoing(nudges, f"Step: {self.number}")
        assert broken(sent) == ""
        if not wanted:
            assert sent[: len(self.before)] == self.before  # the provider's cache holds
        self.before = sent[:-1]
        outcomes = [Outcome(f"result {n}") for n, _ in enumerate(runnable(reply))]
        self.context.add(as_step(self.number, nudges, reply, outcomes, str))
        self.kept.keep(self.context.steps, self.context.pending)

    @rule()
    def restart(self):
        """What the checkpoint keeps of it is the same to the byte."""
        self.kept.keep(self.context.steps, self.context.pending)
        self.kept = from_rows(self.kept.rows())
        self.context.steps, self.context.pending = self.kept.steps(), self.kept.pending_steps()

    @invariant()
    def the_window_is_bounded_and_of_whole_steps(self):
        if hasattr(self, "context"):
            numbers = [step.number for step in self.context.steps]
            assert numbers == list(range(self.number - len(numbers) + 1, self.number + 1))
            assert len(numbers) <= self.context.max_steps + 1


class Record(RuleBasedStateMachine):
    """Events, calls, checkpoints; crashes that leave one copy behind; each start finds everything again."""

    def __init__(self):
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="lab-record-", dir=MEMORY if MEMORY.is_dir() else None))
        self.open_call, self.saved, self.known = False, None, {}
        self._start()

    def _start(self):
        places = self.home / "a" / "run.db", self.home / "b" / "run.db"
        self.recorder = Recorder(*places, "", lambda: 1.0)

    def _event(self, word, **said):
        self.known[self.recorder.event(word, **said)] = word

    @precondition(lambda self: not self.open_call)
    @rule(text=TEXTS)
    def event(self, text):
        self._event(events.WORKER_THOUGHT, sanitized_output=text)

    @precondition(lambda self: not self.open_call)
    @rule()
    def call(self):
        self._event(events.TOOL_CALL, tool_name="read_file")
        self.open_call = True

    @precondition(lambda self: self.open_call)
    @rule()
    def result(self):
        self._event(events.TOOL_RESULT, tool_name="read_file")
        self.open_call = False

    @rule(step=st.integers(0, 9), digest=TEXTS)
    def checkpoint(self, step, digest):
        self.saved = Session("r", step=step, digest=digest, elapsed_seconds=float(step))
        self.saved.save(self.recorder)

    @rule(copy=st.sampled_from("ab"), lost=st.integers(0, 5))
    def crash(self, copy, lost):
        """The processes are gone; on one disk the last rows had not arrived."""
        self.recorder.db.close(), self.recorder.mirror.close()
        with closing(sqlite3.connect(self.home / copy / "run.db")) as db:
            db.execute(
                "DELETE FROM execution_logs WHERE id > (SELECT MAX(id) FROM execution_logs) - ?", (lost,)
            )
            db.commit()
        self._start()
        for row_id, word in self.recorder.query("SELECT id, event_type FROM execution_logs"):
            self.known.setdefault(row_id, word)  # what the start itself had to say
        answered = session.answer_open_calls(self.recorder, session.INTERRUPTED)
        assert answered == int(self.open_call)
        if answered:
            self.known[max(self.known) + 1] = events.TOOL_RESULT
        self.open_call = False
        found = session.load(self.recorder, "r")
        assert (found and (found.step, found.digest)) == (self.saved and (self.saved.step, self.saved.digest))

    @invariant()
    def nothing_is_lost_and_both_copies_are_equal(self):
        assert dict(self.recorder.query("SELECT id, event_type FROM execution_logs")) == self.known
        assert sorted(self.known) == list(range(1, len(self.known) + 1))
        assert self.recorder.mirror_state == "ok"  # waits until the mirror has what run.db has
        with closing(sqlite3.connect(self.home / "b" / "run.db")) as mirror:
            for table in TABLES:
                sql = f"SELECT * FROM {table} ORDER BY 1"
                assert mirror.execute(sql).fetchall() == self.recorder.query(sql)

    def teardown(self):
        self.recorder.db.close(), self.recorder.mirror.close()
        shutil.rmtree(self.home)


class Watermark(RuleBasedStateMachine):
    """Rows are pushed over a line that loses requests and answers, by a harness that restarts."""

    def __init__(self):
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="lab-mark-", dir=MEMORY if MEMORY.is_dir() else None))
        self.wanted = from_dict(run_settings(self.home))
        paths = self.wanted.paths
        self.recorder = Recorder(paths.primary_db, paths.mirror_db, "", lambda: 1.0)
        self.gateway, self.line, self.told = ScriptedGateway(), "up", 0
        self._start()

    def _start(self):
        self.link = GatewayLink(self.wanted)
        self.link._call = self._call

    def _call(self, path, body):
        if self.line == "request lost":
            raise OSError("no route")
        mark = self.gateway.take(body["events"])
        if self.line == "answer lost":
            raise OSError("reset")
        return {"watermark": mark}

    @rule(rows=st.integers(1, 2 * BATCH))
    def record(self, rows):
        for _ in range(rows):
            self.recorder.event(events.WORKER_THOUGHT, sanitized_output="x")

    @rule(line=st.sampled_from(["up", "request lost", "answer lost"]))
    def push(self, line):
        self.line = line
        try:
            while self.link._push():
                pass
        except OSError:
            assert line != "up"
        else:
            if line == "up":
                assert self.link.watermark == self._last()

    @rule()
    def restart(self):
        self._start()

    def _last(self):
        return self.recorder.query("SELECT COALESCE(MAX(id), 0) FROM execution_logs")[0][0]

    @invariant()
    def what_is_acknowledged_is_held_without_a_hole(self):
        held = self.gateway.events
        assert self.link.watermark <= len(held) <= self._last()
        assert sorted(held) == list(range(1, len(held) + 1))
        assert self.link.watermark == 0 or held[self.link.watermark]["id"] == self.link.watermark

    def teardown(self):
        self.gateway._server.server_close()
        self.recorder.db.close(), self.recorder.mirror.close()
        shutil.rmtree(self.home)


def test_every_list_sent_is_whole_and_begins_as_the_last_one_until_a_cut():
    assert run_state_machine_as_test(Memory, settings=PACE) is None


def test_a_record_that_crashes_is_complete_in_both_copies_after_each_start():
    assert run_state_machine_as_test(Record, settings=PACE) is None


def test_the_gateway_holds_every_row_below_the_watermark_over_any_line():
    assert run_state_machine_as_test(Watermark, settings=PACE) is None


def test_over_five_hundred_steps_the_prefix_changes_at_the_cuts_alone():
    draw, context, before, changed = random.Random(500), Context("the rules", 18, 6), [], 0
    for number in range(1, 501):
        cut = context.drop()
        if cut:
            context.digest = f"digest {number}"
        nudges = [{"role": "user", "content": f"nudge {number}"}] * (draw.random() < 0.1)
        sent = context.outgoing(nudges, f"Step: {number}")
        same = json.dumps(sent[: len(before)]) == json.dumps(before)
        assert same or cut
        changed += not same
        before = sent[:-1]
        calls = tuple(ToolCall(f"id{n}", "read_file", "{}") for n in range(draw.randint(0, 3)))
        reply = Reply(draw.choice("abc") * 50, calls, "stop", Usage(), None)
        context.add(as_step(number, nudges, reply, [Outcome("result")] * len(calls), str))
    assert changed == (500 - 20) // 13 + 1
