"""TESTS: a guest in this process: the harness's own recorder, context and steps against a real gateway's app.

It dies at any point it is told to, and goes on from its checkpoint as the harness does.
"""

from __future__ import annotations

import hashlib
import json
import random
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

import collected_natively
import httpx2
from gateway_in_process import TOKEN, InProcess, ScriptedProvider

from harness import report, session
from harness.context import Context
from harness.errors import HarnessError
from harness.money import Usage
from harness.replies import Reply, ToolCall
from harness.steps import as_step, runnable
from harness.telemetry.recorder import Recorder
from harness.text import clean
from labkit.gateway.config import GatewayConfig

SYSTEM = "You work alone."
TEXTS = (
    "ok",
    "",
    "a\r\nb",
    "\x1b[31mred\x1b[0m\x00",
    "na\u00efve \u2192 \U0001f600\u200b",
    f"the token {TOKEN}",
    "x" * 5000,
)


class Crash(BaseException):
    """The guest's harness, or the gateway, is gone at this point."""


@dataclass
class Model:
    """Replies with random texts and calls; bills what it says. Sometimes an error, a cut reply, none."""

    chance: random.Random
    made: int = 0

    def reply(self, body: dict) -> httpx2.Response:
        kind = self.chance.random()
        if kind < 0.04:
            return httpx2.Response(503, json={"error": {"message": "busy"}})
        if kind < 0.07:
            raise httpx2.ReadError("gone")
        if kind < 0.09:
            raise Crash
        message = {"role": "assistant", "content": self.chance.choice(TEXTS) or None}
        calls = [self._call() for _ in range(self.chance.choice([0, 1, 1, 1, 2, 3]))]
        message |= {"tool_calls": calls} if calls else {}
        finish = "length" if kind > 0.97 else "tool_calls"
        usage = {
            "prompt_tokens": self.chance.randint(50, 90),
            "completion_tokens": 9,
            "cost": 0.0001 * self.made,
        }
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return httpx2.Response(200, json={"id": "gen", "choices": [choice], "usage": usage})

    def _call(self) -> dict:
        self.made += 1
        name = self.chance.choice(["execute_shell", "write_scratchpad", "read_file"])
        arguments = (
            {"command": f"echo {self.made} {self.chance.choice(TEXTS)}"}
            if name == "execute_shell"
            else {"name": "x"}
        )
        text = self.chance.choice([json.dumps(arguments), json.dumps(arguments), "", "{broken", "[]"])
        return {"id": f"call_{self.made}", "type": "function", "function": {"name": name, "arguments": text}}


@dataclass
class Guest:
    """One run, made of lives: each begins with `begin` and ends by itself or with a Crash."""

    base: Path
    config: GatewayConfig
    chance: random.Random
    watermark: int = 0
    number: int = 0
    saved: list = field(default_factory=list)  # steps of the window, as the last checkpoint has them

    def __post_init__(self) -> None:
        self.model = Model(self.chance)
        for folder in ("workspace/notes", "telemetry/sealed", "mirror"):
            (self.sandbox / folder).mkdir(parents=True)
        provider = ScriptedProvider(self.model.reply)
        self.gateway = InProcess(self.base / "gateway" / self.config.run_id, self.config, provider)

    @property
    def sandbox(self) -> Path:
        return self.base / "sandbox"

    def begin(self) -> None:
        self.recorder = Recorder(
            self.sandbox / "telemetry/run.db",
            self.sandbox / "mirror/run.db",
            TOKEN,
            lambda: 1.0 * self.number,
        )
        self.context = Context(SYSTEM, 6, 3)
        self.context.steps, self.watermark = list(self.saved), 0
        if not self.recorder.query("SELECT 1 FROM execution_logs"):
            self.recorder.event("RUN_STARTED", sanitized_output=json.dumps(self._origin()))
            self.recorder.checkpoint({"run_id": self.config.run_id})
            self.recorder.prompt("worker", SYSTEM, hashlib.sha256(SYSTEM.encode()).hexdigest())
            return
        boot = self._origin()["boot_id"]
        self.recorder.event("RESUMED", sanitized_output=f"goes on after step 1; boot {boot}")
        session.answer_open_calls(self.recorder, session.INTERRUPTED)

    def _origin(self) -> dict:
        return {"nonce": self.config.nonce, "boot_id": self.gateway.config.boot_id}

    def step(self) -> None:
        self.number += 1
        self.recorder.step = self.number
        reply = self._ask()
        if reply is None:
            return
        self.recorder.event(
            "WORKER_THOUGHT", reply.usage, reply.cost, sanitized_output=clean(reply.text).strip()
        )
        results = [self._act(call) for call in runnable(reply)]
        self._maybe_die()
        try:
            self.context.add(as_step(self.number, [], reply, results, self.recorder.mask))
        except HarnessError as error:
            self.recorder.event("GUARD", guard_reason=f"step failed: {error}")
        if self.context.is_full():
            self.context.cut()
        self._maybe_die()
        self.saved = list(self.context.steps)
        if self.chance.random() < 0.5:
            self.push()

    def push(self) -> None:
        sql = "SELECT * FROM execution_logs WHERE id > ? ORDER BY id LIMIT 100"
        while rows := self._rows(sql, self.watermark):
            answer = self.gateway.post("/v1/events", {"run_id": self.config.run_id, "events": rows}).json()
            assert "conflicts" not in answer
            self.watermark = answer["watermark"]

    def seal(self, stop_reason: str = "time limit reached") -> None:
        counts = report.counts(self.recorder)
        counts["events"] += 1
        summary = {"run_id": self.config.run_id, "status": "sealed", "stop_reason": stop_reason, **counts}
        summary |= {"mirror": self.recorder.mirror_state, "sha256": {}}
        self.recorder.checkpoint({"summary": json.dumps(summary)})
        self.recorder.event("RUN_SEALED", sanitized_output=json.dumps(summary))
        target = self.sandbox / "telemetry/sealed/run.db"
        self.recorder.db.execute("VACUUM INTO ?", (str(target),))
        summary["sha256"] = {"run.db": hashlib.sha256(target.read_bytes()).hexdigest()}
        (self.sandbox / "telemetry/summary.json").write_text(json.dumps(summary))
        self.push()

    def collect(self) -> Path:
        self.recorder.close_mirror()
        self.recorder.db.close()
        self.gateway.ledger.close()
        return collected_natively.collect(self.base, self.sandbox, self.gateway.folder)

    def _ask(self) -> Reply | None:
        messages = self.context.outgoing([], f"step {self.number}")
        self._maybe_die()
        answer = self.gateway.chat(messages=messages)
        self._maybe_die()
        row = {"purpose": "worker", "attempt": 1, "model": "test/model", "step_number": self.number}
        if answer.status_code != 200:
            self.recorder.insert("api_requests", row | {"status": "server"})
            self.recorder.event("API_ERROR", sanitized_output=f"step failed: {answer.status_code}")
            return None
        body = answer.json()
        said, usage = body["choices"][0]["message"], body["usage"]
        calls = [
            ToolCall(c["id"], c["function"]["name"], c["function"]["arguments"])
            for c in said.get("tool_calls", [])
        ]
        used = Usage(usage["prompt_tokens"], usage["completion_tokens"], None, None, usage["cost"])
        figures = {"prompt_tokens": used.prompt, "completion_tokens": used.completion, "cost_usd": used.cost}
        self.recorder.insert("api_requests", row | {"status": "ok"} | figures)
        self._maybe_die()
        return Reply(
            said["content"] or "", tuple(calls), body["choices"][0]["finish_reason"], used, used.cost
        )

    def _act(self, call: ToolCall):
        from harness.tools import parse
        from harness.tools.base import Outcome

        self._maybe_die()
        command = (parse(call.arguments) or {}).get("command") if call.name == "execute_shell" else None
        shown = command if isinstance(command, str) else call.arguments
        self.recorder.event("TOOL_CALL", tool_name=clean(call.name)[:80], command_or_input=clean(shown))
        self._maybe_die()
        text = str(self.recorder.mask(clean(f"{self.chance.choice(TEXTS)} {self.chance.random()}")))
        self.recorder.event("TOOL_RESULT", tool_name=call.name, sanitized_output=text, guard_status="BYPASS")
        if call.name == "write_scratchpad":
            self._write(f"notes/n{self.number}-{call.id}.md", text)
        return Outcome(text)

    def _write(self, name: str, text: str) -> None:
        (self.sandbox / "workspace" / name).write_text(text)
        self.recorder.register(name, "SCRATCHPAD", 1)

    def _maybe_die(self) -> None:
        if self.chance.random() < 0.012:
            raise Crash

    def _rows(self, sql: str, *values: object) -> list[dict]:
        with sqlite3.connect(f"file:{self.sandbox / 'telemetry/run.db'}?mode=ro", uri=True) as db:
            db.row_factory = sqlite3.Row
            return [dict(row) for row in db.execute(sql, values)]
