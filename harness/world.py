"""GUEST: what a run meets outside itself: time, chance, network, processes. A simulation has another."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.ballast import BYTES
from harness.clock import wait
from harness.machine import boot_id, disk_percent
from harness.telemetry.recorder import stamp


@dataclass(frozen=True)
class World:
    """The real world unless told otherwise: all that a run depends on beside its files and its models.

    now: monotonic seconds. tick: seconds between two looks at the stop flag during a model call.
    mark: a random id for untrusted text. event_loop: makes the loop of the model calls.
    shown_as: what record and models read in place of the sandbox's path; '': the path. ballast_bytes: of each
    of the files that are kept for the report; a tmpfs fills them by hand.

    For the last five None means the real thing. transport: of the model's HTTP client. link(settings): events
    out, commands in. command(line, desk, sink, seconds): runs a command whose output goes to the file
    descriptor sink, says how it ended. page(url, seconds): a browser_fetch.Page. backup(command): what it
    said, and whether it was good.
    """

    now: Callable[[], float] = time.monotonic
    wait: Callable[[float, threading.Event], bool] = wait
    tick: float = 0.2
    stamp: Callable[[], str] = stamp
    mark: Callable[[], str] = lambda: secrets.token_hex(6)
    disk_percent: Callable[[Path], float] = disk_percent
    boot_id: Callable[[], str] = boot_id
    event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    shown_as: str = ""
    ballast_bytes: int = BYTES
    transport: Any = None
    link: Callable[[Any], Any] | None = None
    command: Callable[[str, Any, int, float], str] | None = None
    page: Callable[[str, float], Any] | None = None
    backup: Callable[[list[str]], tuple[str, bool]] | None = None


REAL = World()
