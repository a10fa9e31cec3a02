"""TESTS: another machine: a network namespace with a cable of its own to this one. Root on Linux only.

Also the program that runs there: `python other_machine.py URL TOKEN` is a person's browser. It follows the
page's events as a browser's EventSource does and says what it hears, one JSON object a line.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

QUIET_SECONDS = 8.0  # the page gives a sign of life every five


@dataclass
class OtherMachine:
    """name: of its namespace. here, there: the addresses of the two ends. card: this machine's end."""

    name: str
    card: str
    here: str
    there: str

    def run(self, *command: str, seconds: float = 60) -> subprocess.CompletedProcess:
        line = ["ip", "netns", "exec", self.name, *command]
        return subprocess.run(line, capture_output=True, text=True, timeout=seconds)

    def start(self, *command: str, **more: object) -> subprocess.Popen:
        return subprocess.Popen(["ip", "netns", "exec", self.name, *command], **more)

    def plug(self, state: str) -> None:
        """up or down."""
        _ip("link", "set", self.card, state)


def why_not() -> str:
    """Why there can be none here; empty where there can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces want root on Linux"
    for program, package in (("ip", "iproute2"), ("curl", "curl")):
        if shutil.which(program) is None:
            return f"there is no {program}: apt-get install {package}"
    name = f"lab-try-{secrets.token_hex(3)}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return f"no network namespace can be made: {tried.stderr.strip()}" if tried.returncode else ""


@contextlib.contextmanager
def connected() -> Iterator[OtherMachine]:
    """It is gone afterwards, with its cable. Who started something in it ends it before."""
    word = secrets.token_hex(3)
    net = f"198.18.{secrets.randbelow(256)}"  # kept for measuring devices: no real network has it
    other = OtherMachine(f"lab-other-{word}", f"lab{word}a", f"{net}.1", f"{net}.2")
    _ip("netns", "add", other.name)
    try:
        _ip("link", "add", other.card, "type", "veth", "peer", "name", f"lab{word}b", "netns", other.name)
        _ip("addr", "add", f"{other.here}/30", "dev", other.card)
        _ip("-n", other.name, "addr", "add", f"{other.there}/30", "dev", f"lab{word}b")
        for line in (
            ("-n", other.name, "link", "set", "lo"),
            ("-n", other.name, "link", "set", f"lab{word}b"),
        ):
            _ip(*line, "up")
        other.plug("up")
        yield other
    finally:
        subprocess.run(["ip", "link", "del", other.card], capture_output=True)
        _ip("netns", "del", other.name)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


class Visitor:
    """A person's browser there. `heard`: what it has said so far."""

    def __init__(self, other: OtherMachine, url: str, token: str) -> None:
        line = (sys.executable, str(Path(__file__)), url, token)
        self.process = other.start(*line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.heard: list[dict] = []

    def next(self, what: str) -> dict:
        """Reads on to the next line that tells of this."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.heard.append(json.loads(line))
            if what in self.heard[-1]:
                return self.heard[-1]
        raise AssertionError(f"the visitor ended before it told of {what}: {self.heard[-3:]}")

    def rows_upto(self, last: int) -> list[int]:
        """The places of all rows that it heard of, once it has that of `last`."""
        while last not in (places := [said["row"] for said in self.heard if "row" in said]):
            self.next("row")
        return places

    def say(self, command: str, **more: object) -> dict:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"name": command, **more}) + "\n")
        self.process.stdin.flush()
        return self.next("answered")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def visit(url: str, token: str) -> None:
    import httpx2

    patience = httpx2.Timeout(QUIET_SECONDS, connect=2.0)
    with httpx2.Client(base_url=url, trust_env=False, timeout=patience) as http:
        tell(login=http.post("/login", json={"token": token, "name": "Ada"}).status_code)
        csrf = http.get("/state").json()["csrf"]
        threading.Thread(target=give_orders, args=(http, csrf), daemon=True).start()
        seen = [0]
        while True:
            try:
                follow(http, seen)
            except httpx2.HTTPError as error:
                tell(cut=type(error).__name__)
            time.sleep(0.2)


def follow(http: Any, seen: list[int]) -> None:
    """Until the connection ends. seen: the last place known, which a browser names when it comes back."""
    with http.stream("GET", "/events", headers={"last-event-id": str(seen[-1])}) as answer:
        kind = ""
        for line in answer.iter_lines():
            kind = line.removeprefix("event: ") if line.startswith("event: ") else kind
            if line.startswith("data: ") and kind == "row":
                seen.append(json.loads(line.removeprefix("data: "))["n"])
                tell(row=seen[-1])


def give_orders(http: Any, csrf: str) -> None:
    for line in sys.stdin:
        answer = http.post("/command", json=json.loads(line), headers={"x-lab-csrf": csrf})
        tell(answered=answer.status_code)


def tell(**said: object) -> None:
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    visit(*sys.argv[1:])
