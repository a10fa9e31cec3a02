"""HOST: by whom a command is asked, as the record has it; and what came of it, in a sentence."""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
import time
from pathlib import Path

from labkit.errors import LabError
from labkit.gateway import commands, process
from labkit.gateway.events import EventTail, run_summary
from labkit.gateway.page import access

WAIT_SECONDS = 5.0  # a session between two steps takes a command within a second or two
STATES = {
    "queued": "the session has not heard of it yet; it is told as soon as it asks",
    "delivered": "the session was told, and takes it when the step it is in allows",
    "acknowledged": "the session has taken it",
}


def who() -> dict[str, str]:
    """The person at this terminal: {"by": "cli", "user", "tty", "host"}; user is the one behind sudo."""
    return {"by": "cli", "user": _user(), "tty": _tty(), "host": socket.gethostname()}


def _user() -> str:
    if behind := os.environ.get("SUDO_USER"):
        return behind
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user without an entry
        return f"uid {os.getuid()}"


def _tty() -> str:
    for descriptor in (0, 1, 2):
        with contextlib.suppress(OSError):
            return os.ttyname(descriptor)
    return "no terminal"


def page_link(folder: Path) -> str:
    """The live page's address with its token; LabError where none is served."""
    link = access.link(folder)
    if not link or not process.alive(folder):
        raise LabError(
            f"no page is served for run {folder.name}",
            "its gateway ended, or run_page_address in run.yml is empty; `lab status` shows which",
        )
    return link


def ask(folder: Path, name: str, args: dict | None, why: str, seconds: float = WAIT_SECONDS) -> dict:
    """Queue the command and wait a little. {"run", "command": id, "name", "state", "text"}.

    LabError where nobody will ever hear it: the run is sealed.
    """
    if run_summary(EventTail(folder).poll()):
        raise LabError(
            f"run {folder.name} is sealed: it hears nothing any more", "`lab collect` brings it home"
        )
    number = commands.append(folder, name, args, who=who(), why=why)
    state = wait_for(folder, number, seconds)
    said = (
        STATES[state] if process.alive(folder) else "its gateway is not running; the command is kept for it"
    )
    text = f"command {number} to run {folder.name}: {name}: {said}"
    return {"run": folder.name, "command": number, "name": name, "state": state, "text": text}


def wait_for(folder: Path, number: int, seconds: float) -> str:
    """The command's state once it is acknowledged, or after that many seconds."""
    ends = time.monotonic() + seconds
    while True:
        state = next(item["state"] for item in commands.listed(folder) if item["id"] == number)
        if state == "acknowledged" or time.monotonic() >= ends:
            return state
        time.sleep(0.2)
