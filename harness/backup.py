"""GUEST: starts the backup command of the run. A failure is an event, never a stop."""

from __future__ import annotations

import subprocess

from harness.settings import Settings
from harness.telemetry import events
from harness.telemetry.recorder import Recorder
from harness.text import decode

SECONDS = 120.0


def back_up(settings: Settings, recorder: Recorder) -> bool:
    """Run it as we are (root in the guest), record what it said. True: it made a generation."""
    if not settings.backup_command:
        return False
    try:
        done = subprocess.run(
            settings.backup_command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
        )
        said, good = decode(done.stdout).strip()[-500:], done.returncode == 0
    except (OSError, subprocess.TimeoutExpired) as error:
        said, good = str(error), False
    recorder.event(events.BACKUP, sanitized_output=said if good else f"failed: {said}")
    return good
