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
AWAY = "its gateway is not running; the command is kept for it"
# Of a command that may change nothing: the sentence then; which commands bear on it; after which of them,
# being the last one, it changes nothing ("": none was asked).
# A run that is extended may go on though it was asked to end.
HOLDING, ENDING = ("pause", "unpause", "finish", "stop"), ("finish", "stop")
ALREADY = {
    "pause": ("is paused already", HOLDING, ("pause",)),
    "unpause": ("is not paused", HOLDING, ("", "unpause", "finish", "stop")),
    "finish": ("was asked to end already", (*ENDING, "extend"), ENDING),
    "stop": ("was asked to stop already", ("stop",), ("stop",)),
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
    """Queue the command and wait a little. {"run", "command": id, "name", "state", "changed", "text"}.

    changed: False where an earlier command has that effect already: nothing is queued then, and command and
    state are that one's (None where there is none, as for `unpause` before any `pause`).
    LabError where nobody will ever hear it: the run is sealed.
    """
    if run_summary(EventTail(folder).rows()):
        raise LabError(
            f"run {folder.name} is sealed: it hears nothing any more", "`lab collect` brings it home"
        )
    needless, number = already(name, commands.listed(folder))
    if not needless:
        number = commands.append(folder, name, args, who=who(), why=why)
    state = wait_for(folder, number, seconds) if number else None
    asked = {"run": folder.name, "command": number, "name": name, "state": state, "changed": not needless}
    return {**asked, "text": _said(folder, asked, needless)}


def already(name: str, known: list[dict]) -> tuple[str, int | None]:
    """Why asking for this after the commands that are known changes nothing, and which of them did it.

    ("", None) where it changes something.
    """
    sentence, bearing, settling = ALREADY.get(name, ("", (), ()))
    last = next((item for item in reversed(known) if item["name"] in bearing), {"id": None, "name": ""})
    return (sentence, last["id"]) if last["name"] in settling else ("", None)


def _said(folder: Path, asked: dict, needless: str) -> str:
    is_heard = asked["state"] == "acknowledged" or process.alive(folder)
    came = STATES.get(asked["state"], "") if is_heard else AWAY
    if not needless:
        return f"command {asked['command']} to run {folder.name}: {asked['name']}: {came}"
    earlier = f" (command {asked['command']}: {came})" if asked["command"] else ""
    return f"run {folder.name} {needless}{earlier}: nothing more was asked"


def wait_for(folder: Path, number: int, seconds: float) -> str:
    """The command's state once it is acknowledged, or after that many seconds."""
    ends = time.monotonic() + seconds
    while True:
        state = next(item["state"] for item in commands.listed(folder) if item["id"] == number)
        if state == "acknowledged" or time.monotonic() >= ends:
            return state
        time.sleep(0.2)
