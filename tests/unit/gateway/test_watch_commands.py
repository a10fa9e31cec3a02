"""TESTS: the terminal's live view knows a longer run, a pause, what was asked and a trouble that is open."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

from labkit.gateway import commands, watchdog
from labkit.gateway.files import JsonLines
from labkit.gateway.views import EVENTS
from labkit.watch import View


def push(folder: Path, name: str, *rows: dict) -> None:
    lines = JsonLines(folder / name)
    lines.append(list(rows))
    lines.close()


def test_the_view_shows_extension_pause_command_and_trouble(tmp_path, make_config, event):
    make_config().save(tmp_path)
    commands.append(tmp_path, "extend", {"minutes": 7, "budget_usd": 2.5})
    commands.append(tmp_path, "pause")
    line = json.dumps({"id": 2, "name": "pause"})
    push(tmp_path, EVENTS, event(1, event_type="COMMAND", command_or_input=line, elapsed_seconds=60.0))
    push(tmp_path, watchdog.FILE_NAME, {"what": "trouble", "text": "the guest is paused"})
    view = View(tmp_path)
    view.poll()
    view.alive = True
    console = Console(file=io.StringIO(), width=110)
    console.print(view.render())
    seen = console.file.getvalue()
    assert "9:00 of 10:00" in seen, "a pause does not count down"
    for piece in ("of $3.50", "pause: queued", "paused on request", "trouble: the guest is paused"):
        assert piece in seen
