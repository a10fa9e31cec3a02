"""HOST: the scripted agents of a simulation: a Worker by behaviour, the Inspector, the Digest, the report."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from labkit.simulation.chance import Chance
from labkit.simulation.script import Script

_PHASE = re.compile(r"^Phase: (\w+)$", re.M)
_HOURS = re.compile(r"^Elapsed: .* of (\d+)h (\d\d)m, remaining: (?:(\d+)h )?(\d+)m", re.M)
LAST_SHARE = 0.16  # of a long run's time is left when the diligent Worker writes its report
REPORT_SAYS = "# Final report\n\nWhat was built, what was measured and what stays open, in short.\n"


@dataclass
class Said:
    """One assistant message. calls: (tool, arguments as an object or as raw text)."""

    text: str
    calls: list[tuple[str, Any]] = field(default_factory=list)
    finish: str | None = ""  # '': what fits
    ids: bool = True
    completion_tokens: int | None = None  # None: counted


# What the diligent Worker does in turn; a tool that is not offered is passed over.
ROUNDS = {
    "EXPLORATION": ("shell", "shell", "note", "shell", "fetch", "note", "gated", "shell", "note", "list"),
    "DEVELOPMENT": ("script", "shell", "shell", "note", "shell", "read", "shell"),
    "SYNTHESIS": ("read", "shell", "note", "read", "master", "shell"),
    "FINAL_REPORT": ("report", "words", "words"),
}
TOOL_OF = {
    "shell": "execute_shell",
    "gated": "execute_shell",
    "find": "execute_shell",
    "note": "write_scratchpad",
    "master": "write_scratchpad",
    "report": "write_scratchpad",
    "script": "write_script",
    "fetch": "browser_fetch",
    "read": "read_file",
    "list": "list_workspace",
    "words": "",
}


class Agents:
    """Answers each purpose in turn. What is said follows from the seed and the requests alone."""

    def __init__(self, script: Script, chance: Chance) -> None:
        self.script, self.chance = script, chance
        self.phase, self.turn = "", 0
        self.count = 0
        self.notes: list[str] = []
        self.reports = 0

    def recorded(self, purpose: str) -> Any:
        """The next recorded attempt; only a replay has any."""
        return None

    def cut_off(self, purpose: str) -> float | None:
        """Seconds after which the session is cut off in this call; only a replay knows any."""
        return None

    def answer(self, purpose: str, body: dict) -> Said:
        if purpose == "worker":
            return self._worker(body)
        if purpose == "inspector":
            return self._inspector()
        if purpose == "digest":
            return self._digest()
        return Said(REPORT_SAYS)

    def _inspector(self) -> Said:
        blocks = self.chance.stream("inspector").random() < self.script.block_probability
        verdict = "BLOCK" if blocks else "ALLOW"
        reason = "it tries to steer its reader" if blocks else "ordinary engineering"
        return Said(json.dumps({"verdict": verdict, "reason": reason}))

    def _digest(self) -> Said:
        last = ", ".join(f"notes/{name}" for name in self.notes[-6:]) or "no note yet"
        why, words = self.chance.words(10, "digest"), self.chance.words(6, "digest")
        return Said(
            f"Working on: {self.chance.words(8, 'digest')}.\nDecided: the {self.chance.words(3, 'digest')}, "
            f"because {why}.\nNotes: {last}.\nOpen: {words}."
        )

    def _worker(self, body: dict) -> Said:
        offered = {tool["function"]["name"] for tool in body.get("tools", [])}
        status = str(body["messages"][-1].get("content"))
        phase = (_PHASE.findall(status) or [self.phase or "EXPLORATION"])[-1]
        if phase != self.phase:
            self.phase, self.turn = phase, 0
        if self.script.worker == "talker":
            return Said(f"I would rather think than act: {self.chance.words(20, 'worker')}.")
        if self.script.worker == "looper" and "execute_shell" in offered:
            return Said("Once more.", [("execute_shell", {"command": "cat /etc/hostname"})])
        if phase == "FINAL_REPORT" and not self.reports and _may_read_on(status):
            return self._play(("read", "find", "list")[self.count % 3])
        return self._play(self._next(offered))

    def _next(self, offered: set[str]) -> str:
        moves = ROUNDS.get(self.phase, ROUNDS["EXPLORATION"])
        for _ in moves:
            move = moves[self.turn % len(moves)]
            self.turn += 1
            if move == "report" and self.script.worker == "never_reports":
                continue
            if not TOOL_OF[move] or TOOL_OF[move] in offered:
                return move
        return "words"

    def _play(self, move: str) -> Said:
        self.count += 1
        thought = f"{self.chance.words(18, 'worker').capitalize()}."
        arguments = getattr(self, f"_{move}")()
        return Said(thought, [(TOOL_OF[move], arguments)] if TOOL_OF[move] else [])

    def _words(self) -> None:
        return None

    def _shell(self) -> dict:
        what = self.chance.words(2, "worker").replace(" ", "_")
        return {"command": f"python3 scripts/{what}.py --round {self.count} | tail -40"}

    def _gated(self) -> dict:
        return {"command": f"pip download numpy=={1 + self.count % 3}.{self.count}"}

    def _find(self) -> dict:
        return {"command": f"find notes -name '*{self.count % 100:02d}.md' | head -20"}

    def _note(self) -> dict:
        name = f"{self.chance.words(2, 'worker').replace(' ', '_')}_{self.count:05d}.md"
        self.notes.append(name)
        text = f"# {name}\n\n{self.chance.words(90, 'worker')}.\n\n{self.chance.lines(6, 'worker')}\n"
        return {"filename": name, "content": text}

    def _master(self) -> dict:
        carried = "\n".join(f"* {name}" for name in self.notes[-20:])
        text = f"# What holds\n\n{self.chance.words(150, 'worker')}.\n\n{carried}\n"
        return {"filename": f"master_v{self.count}.md", "content": text}

    def _script(self) -> dict:
        name = f"{self.chance.words(1, 'worker')}_{self.count:05d}.py"
        return {"filename": name, "content": f'"""{name}"""\n' + f"print({self.count})\n" * 30}

    def _fetch(self) -> dict:
        return {"url": f"https://docs.example.org/{self.chance.words(1, 'worker')}/{self.count}"}

    def _read(self) -> dict:
        return {"path": f"notes/{self.notes[-1]}" if self.notes else "notes/none.md"}

    def _list(self) -> dict:
        return {}

    def _report(self) -> dict:
        self.reports += 1
        return {"filename": f"final_report_v{self.reports}.md", "content": REPORT_SAYS}


def _may_read_on(status: str) -> bool:
    """In a long run there is time to read before the report; in a short or hurried one there is none."""
    found = _HOURS.search(status)
    if found is None or "brought to its end" in status:
        return False
    length, left = int(found[1]) * 60 + int(found[2]), int(found[3] or 0) * 60 + int(found[4])
    return left > LAST_SHARE * length
