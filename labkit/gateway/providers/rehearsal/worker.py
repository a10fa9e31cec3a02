"""HOST: the rehearsal's Worker: which move comes next, remembered on disk so that a restart goes on."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path

from labkit.gateway.files import write_private
from labkit.gateway.providers.rehearsal import messages as reading
from labkit.gateway.providers.rehearsal import script
from labkit.gateway.providers.rehearsal.script import SIZES, Move

QUOTE_CHARS = 700
FAILED = re.compile(r"not written|already exists|refus|\berror\b|interrupted", re.IGNORECASE)
REPORT_TRIES = 4

log = logging.getLogger("labkit.gateway")


@dataclass
class State:
    """What the Worker has done: moves played by phase, what came back by move, files written."""

    played: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    calls: int = 0
    phase: str = ""
    report_version: int = 1
    last_request: str = ""
    last_move: str = ""
    last_reply: dict = field(default_factory=dict)


class Worker:
    """`reply` answers one request. The same request again gets the same answer: a retry repeats no move."""

    def __init__(self, pages_url: str, state_path: Path | None = None) -> None:
        self.pages_url = pages_url
        self.state_path = state_path
        self.state = _load(state_path)
        self._unsaved = False  # said once, not with every move

    def reply(self, messages: list[dict], tools: list[dict]) -> dict:
        """An assistant message: {"content": str, "tool_calls": [...] (left out for words only)}."""
        request = hashlib.sha256(json.dumps([messages, tools], sort_keys=True).encode()).hexdigest()
        if request != self.state.last_request:
            self._take_in(messages)
            self.state.phase = reading.phase(messages) or self.state.phase or "EXPLORATION"
            self.state.last_request, self.state.last_reply = request, self._next(_by_name(tools))
            self._save()
        return self.state.last_reply

    def _take_in(self, messages: list[dict]) -> None:
        """Keep what the last move printed: the harness drops old steps, notes quote them later.

        A move makes one call, so the latest result is the last move's, whatever id the harness gives it.
        """
        result = reading.last_result(messages)
        if result and self.state.last_move:
            self.state.outputs[self.state.last_move] = _quote(result)
        refused = self.state.last_move == "report" and FAILED.search(result)
        if refused and self.state.report_version < REPORT_TRIES:
            self.state.report_version += 1
            self.state.played["FINAL_REPORT"] -= 1
        self.state.last_move = ""

    def _next(self, offered: dict[str, dict]) -> dict:
        phase = script.load().get(self.state.phase) or script.load()["EXPLORATION"]
        for _ in range(len(phase.moves) + len(phase.loop)):
            turn = self.state.played.get(self.state.phase, 0)
            self.state.played[self.state.phase] = turn + 1
            looped = turn - len(phase.moves)
            move = phase.moves[turn] if looped < 0 else phase.loop[looped % len(phase.loop)]
            if not move.tool or move.tool in offered:
                return self._play(move, offered, 1 + max(0, looped) // len(phase.loop))
        return {"content": "None of my tools is offered now. I wait for the next step."}

    def _play(self, move: Move, offered: dict[str, dict], round_number: int) -> dict:
        def value(name: str, argument: str) -> str:
            return self._value(name, argument, round_number)

        content = script.fill(move.thought, value)
        if not move.tool:
            return {"content": content}
        args = {name: script.fill(text, value) for name, text in move.args}
        if move.id == "report":
            args["name"] = f"final_report_v{self.state.report_version}.md"
        self._remember(move.tool, args)
        self.state.calls += 1
        self.state.last_move = move.id
        arguments = json.dumps(script.named_as_offered(args, offered[move.tool]))
        function = {"name": move.tool, "arguments": arguments}
        call = {"id": f"call_{self.state.calls}_{move.id}", "type": "function", "function": function}
        return {"content": content, "tool_calls": [call]}

    def _value(self, name: str, argument: str, round_number: int) -> str:
        state = self.state
        values = {
            "out": lambda: state.outputs.get(argument, "(not run in this session)"),
            "last": lambda: next(reversed(state.outputs.values()), ""),
            "n": lambda: str(round_number),
            "size": lambda: str(SIZES[(round_number - 1) % len(SIZES)]),
            "pages": lambda: self.pages_url,
            "notes": lambda: _bullets("notes", state.notes),
            "scripts": lambda: _bullets("scripts", state.scripts),
        }
        return values[name]()

    def _remember(self, tool: str, args: dict[str, str]) -> None:
        written = {"write_scratchpad": self.state.notes, "write_script": self.state.scripts}.get(tool)
        if written is not None:
            written.append(args["name"])

    def _save(self) -> None:
        """A full disk keeps nobody from playing on: only a restart meanwhile would repeat moves."""
        if not self.state_path:
            return
        try:
            write_private(self.state_path, json.dumps(asdict(self.state)))
            self._unsaved = False
        except OSError as error:
            if not self._unsaved:
                log.warning("the rehearsal's place in its script is not saved: %s", error)
            self._unsaved = True


def _load(path: Path | None) -> State:
    try:
        return State(**json.loads(path.read_text(encoding="utf-8"))) if path else State()
    except (OSError, ValueError, TypeError):
        return State()


def _by_name(tools: list[dict]) -> dict[str, dict]:
    """Offered tools: name to JSON schema of the arguments."""
    functions = [tool.get("function") or {} for tool in tools if isinstance(tool, dict)]
    return {
        item["name"]: item.get("parameters") or {} for item in functions if isinstance(item.get("name"), str)
    }


def _quote(text: str) -> str:
    """A tool result short enough for a note, unable to end the fence around it, without a dull last line."""
    lines = [line.rstrip() for line in text.replace("```", "'''").strip().splitlines()]
    lines = [line for line in lines if line != "[exit code 0]"]
    return "\n".join(lines)[:QUOTE_CHARS]


def _bullets(folder: str, names: list[str]) -> str:
    return "\n".join(f"* {folder}/{name}" for name in names[-40:]) or "* none"
