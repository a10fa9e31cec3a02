"""HOST: what the page shows of a run: every event by its place in events.jsonl, files, verdicts, the state.

Only places are kept in memory; rows are read again from the file. A place (1, 2, ...) never changes, over
restarts too, so it is the watermark of a browser that comes back.
"""

from __future__ import annotations

import json
import re
import time
import unicodedata
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from labkit.gateway import commands, network
from labkit.gateway.config import GatewayConfig
from labkit.gateway.files import parse_line
from labkit.gateway.progress import Progress
from labkit.gateway.views import EVENTS

CHUNK = 1 << 20  # bytes taken in at once: a gateway that catches up still answers its guest
SHORT, LONG = 1500, 200_000  # characters of a text in the list, and when it is opened
MAX_FILES = 5000
KINDS = {"write_scratchpad": "note", "write_script": "script"}


class Board:
    """Follows one run's events. Poll it from one thread; what it returns is fit for JSON and made visible."""

    def __init__(self, run_dir: Path, config: GatewayConfig, spent: Callable[[], float]) -> None:
        """spent: dollars as the gateway counts them, which the guest can't touch."""
        self.run_dir, self.config, self.spent = Path(run_dir), config, spent
        self.progress = Progress()
        self.files: list[dict[str, Any]] = []
        self.verdicts = array("Q")
        self.closed = False  # the gateway is going: streams end
        self.alarm: Callable[[], dict | None] = lambda: None
        self.extension = commands.Extension(run_dir)
        self._offsets = array("Q")
        self._end = 0
        self._call: tuple[int, dict] | None = None  # the write that waits for its result
        self._last_at = time.time()

    @property
    def count(self) -> int:
        """How many events there are: the place of the last one."""
        return len(self._offsets)

    def poll(self) -> bool:
        """Take in what is new, a chunk at most. True: there may be more."""
        try:
            with open(self.run_dir / EVENTS, "rb") as file:
                file.seek(self._end)
                data = file.read(CHUNK)
                while b"\n" not in data and (more := file.read(CHUNK)):
                    data += more  # one line longer than a chunk
        except FileNotFoundError:
            return False
        whole = data[: data.rfind(b"\n") + 1]
        for line in whole.splitlines(keepends=True):
            for row in parse_line(line):
                self._take(row)
            self._end += len(line)
        return len(data) >= CHUNK

    def rows(self, after: int, limit: int) -> list[dict[str, Any]]:
        """Rows behind the place `after`, oldest first."""
        return self._read(range(max(0, after), min(self.count, max(0, after) + limit)), SHORT)

    def rows_before(self, before: int, limit: int) -> list[dict[str, Any]]:
        """Rows in front of the place `before`, oldest first."""
        end = min(self.count, max(0, before - 1))
        return self._read(range(max(0, end - limit), end), SHORT)

    def last_verdicts(self, limit: int) -> list[dict[str, Any]]:
        return self._read([place - 1 for place in self.verdicts[-limit:]], SHORT)

    def row(self, place: int) -> dict[str, Any] | None:
        """One row with its texts whole (to 200,000 characters each)."""
        if not 1 <= place <= self.count:
            return None
        return next(iter(self._read([place - 1], LONG)), None)

    def file(self, place: int) -> dict[str, Any] | None:
        """A note, script or report: {"name", "kind", "content"}, out of the event at this place."""
        known = next((item for item in self.files if item["n"] == place), None)
        row = self._raw(place - 1) if known else None
        if known is None or row is None:
            return None
        content = row.get("sanitized_output") if known["kind"] == "report" else _arguments(row).get("content")
        return {**known, "content": visible(str(content or ""), LONG)}

    def state(self) -> dict[str, Any]:
        """Where the run stands now."""
        progress, config = self.progress, self.config
        minutes = config.minutes + self.extension.minutes
        return {
            "run": config.run_id,
            "models": list(config.models),
            "network": visible(network.mode(self.run_dir), 20),
            "phase": visible(progress.phase, 60),
            "step": progress.step,
            "elapsed": round(progress.elapsed, 1),
            "length": minutes * 60,
            "cost": round(self.spent(), 6),
            "budget": config.budget_usd + self.extension.usd,
            "thought": visible(progress.thought, SHORT),
            "doing": visible(progress.command, 300),
            "waits_for": progress.waits_for,
            "quiet": round(max(0.0, time.time() - self._last_at), 0),
            "reviews": progress.reviews,
            "blocks": progress.blocks,
            "events": self.count,
            "files": len(self.files),
            "paused": progress.paused,
            "sealed": self._sealed(),
            "alarm": self.alarm(),
            "commands": [_told(item) for item in commands.listed(self.run_dir)[-20:]],
        }

    def _sealed(self) -> str:
        if self.progress.summary is None:
            return ""
        return visible(str(self.progress.summary.get("stop_reason") or "sealed"), 100)

    def _take(self, row: dict) -> None:
        self._offsets.append(self._end)
        self._last_at = time.time()
        self.progress.apply(row)
        event = row.get("event_type")
        if event == "INSPECTOR_DECISION":
            self.verdicts.append(self.count)
        elif event == "TOOL_CALL" and row.get("tool_name") in KINDS:
            self._call = (self.count, row)
        elif event == "TOOL_RESULT" and self._call:
            (place, call), self._call = self._call, None
            self._written(place, call, str(row.get("sanitized_output") or ""))
        elif event == "REPORT" and str(row.get("command_or_input") or "").startswith("notes/"):
            self._add(self.count, "report", str(row["command_or_input"]), row)

    def _written(self, place: int, call: dict, result: str) -> None:
        """Only what the harness says it wrote is a file, under the name it says."""
        word, _, rest = result.partition(": ")
        if word == "Written" and "/" in rest:
            name = rest.rpartition(" (")[0] or rest
            self._add(place, KINDS[call["tool_name"]], name, call)

    def _add(self, place: int, kind: str, name: str, row: dict) -> None:
        if len(self.files) < MAX_FILES:
            step = row.get("step_number")
            self.files.append({"n": place, "kind": kind, "name": visible(name, 200), "step": step})

    def _read(self, places: Any, limit: int) -> list[dict[str, Any]]:
        rows = ((place, self._raw(place)) for place in places)
        return [_shown(place + 1, row, limit) for place, row in rows if row is not None]

    def _raw(self, index: int) -> dict | None:
        with open(self.run_dir / EVENTS, "rb") as file:
            file.seek(self._offsets[index])
            return next(iter(parse_line(file.readline())), None)


def _shown(place: int, row: dict, limit: int) -> dict[str, Any]:
    texts = {"input": row.get("command_or_input"), "text": row.get("sanitized_output")}
    texts |= {"reason": row.get("guard_reason")}
    numbers = {"id": row.get("id"), "step": row.get("step_number"), "elapsed": row.get("elapsed_seconds")}
    words = {"at": "timestamp", "phase": "phase", "event": "event_type", "tool": "tool_name"}
    return {
        "n": place,
        **{name: value if isinstance(value, int | float) else None for name, value in numbers.items()},
        **{name: visible(str(row.get(column) or ""), 80) for name, column in words.items()},
        "status": visible(str(row.get("guard_status") or ""), 20),
        **{name: visible(str(value), limit) for name, value in texts.items() if value},
        "cut": any(len(str(value or "")) > limit for value in texts.values()),
    }


def _told(item: dict) -> dict[str, Any]:
    """A command as the page lists it."""
    who = item.get("who") if isinstance(item.get("who"), dict) else {}
    by = " ".join(str(who[key]) for key in ("user", "tty", "host", "from") if who.get(key))
    args = ", ".join(f"{name} {value}" for name, value in item["args"].items())
    return {
        "id": item["id"],
        "name": str(item["name"]),
        "args": visible(args, 300),
        "by": visible(by, 120),
        "why": visible(str(item.get("why") or ""), 300),
        "state": item["state"],
    }


def _arguments(row: dict) -> dict:
    try:
        found = json.loads(row.get("command_or_input") or "")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def visible(text: str, limit: int) -> str:
    """Text of an agent with its line breaks; control, direction and invisible characters become `·`."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return _ODD.sub(_shown_character, text)


def _shown_character(found: re.Match) -> str:
    return "·" if unicodedata.category(found[0]) in _HIDDEN else found[0]


_ODD = re.compile(r"[^\x20-\x7e\n\t]")  # the rest needs no second look
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
