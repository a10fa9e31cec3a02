"""GUEST: starts the backup command of the run. A failure is an event, never a stop."""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from collections.abc import Callable

from harness.settings import Settings
from harness.telemetry import events
from harness.telemetry.recorder import Recorder
from harness.text import decode

SECONDS = 120.0


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
        ends = time.monotonic() + SECONDS
        while process.poll() is None:
            if stop.is_set() or time.monotonic() > ends:
                process.kill()
                process.wait()
                return "stopped before it was done", False
            time.sleep(0.05)
        sink.seek(0)
        return decode(sink.read(100_000)).strip()[-500:], process.returncode == 0
