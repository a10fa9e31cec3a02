"""TESTS: a gateway whose watchdog is impatient, and what it told."""

from __future__ import annotations

from pathlib import Path

import pytest

from labkit.gateway import process, watchdog
from labkit.gateway.files import read_lines
from labkit.gateway.helpers import Helpers

QUICK = {"look": 0.1, "silent": 2.5, "stuck": 3.0, "first": 60.0, "repair": 3.0, "repair_stuck": 4.0, "pause": 0.5, "give_up": 4.5}  # fmt: skip  # noqa: E501


def told(folder: Path) -> list[str]:
    return [item["what"] for item in read_lines(folder / watchdog.FILE_NAME)]


def kinds(folder: Path) -> list[str]:
    return [item["trouble"] for item in read_lines(folder / watchdog.FILE_NAME) if item["what"] == "trouble"]


@pytest.fixture
def guarded(run_gateway):
    """Starts a gateway whose watchdog is impatient and has these helpers."""

    def begin(limits: dict | None = None, **helpers: tuple[str, ...]):
        running = run_gateway()
        running.stop()
        wanted = Helpers(**helpers, limits=QUICK | (limits or {}))
        process.start(running.folder, running.config, helpers=wanted)
        return running

    return begin
