"""GUEST: starts the backup command of the run. A failure is an event, never a stop."""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable

from harness.settings import Settings
from harness.telemetry import events
from harness.telemetry.recorder import Recorder
from harness.text import decode

SECONDS, TICK_MS = 120.0, 50


def back_up(
    settings: Settings, recorder: Recorder, stop: threading.Event,
    instead: Callable[[list[str]], tuple[str, bool]] | None = None,
) -> bool:  # fmt: skip
    """Run it as we are (root in the guest), record what it said. `instead` takes its place.

    True: it made a generation.
    """
    if not settings.backup_command:
        return False
    try:
        command = settings.backup_command
        said, good = instead(command) if instead else _run(command, stop)
    except OSError as error:
        said, good = str(error), False
    recorder.event(events.BACKUP, sanitized_output=said if good else f"failed: {said}")
    return good


def _run(command: list[str], stop: threading.Event) -> tuple[str, bool]:
    with tempfile.TemporaryFile() as sink:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)
        if not _ended(process, stop):
            process.kill()
            process.wait()
            return "stopped before it was done", False
        process.wait()
        sink.seek(0)
        return decode(sink.read(100_000)).strip()[-500:], process.returncode == 0


def _ended(process: subprocess.Popen, stop: threading.Event) -> bool:
    """Wait for it, and not a moment longer. False: its time is over, or the run is to end at once."""
    ends = time.monotonic() + SECONDS
    handle = os.pidfd_open(process.pid)
    try:
        poller = select.poll()
        poller.register(handle, select.POLLIN)
        while not poller.poll(TICK_MS):
            if stop.is_set() or time.monotonic() > ends:
                return False
        return True
    finally:
        os.close(handle)
