"""TESTS: a gateway process with its page, as a person's browser and the guest see it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from loopback import RUN_ID, free_port, gateway_config

from labkit.gateway import pidfile, process
from labkit.gateway.page import access
from labkit.gateway.rows import COLUMNS

TOKEN = "guest-token-of-this-test"


class Served:
    """A run's gateway with a page; talks to it as the guest does, and logs in as a person does."""

    def __init__(self, folder: Path, **changes: object) -> None:
        self.folder = folder
        ours = {"models": ("test/model",), "max_completion_tokens": 4096, "pages_base": ""}
        page = {"page_bind": "127.0.0.1", "page_port": free_port()}
        self.config = gateway_config(TOKEN, **ours | page | changes)
        self.guest = httpx2.Client(
            base_url=f"http://127.0.0.1:{self.config.port}",
            headers={"authorization": f"Bearer {TOKEN}"},
            trust_env=False,
            timeout=20.0,
        )
        self.pushed = 0

    def start(self) -> None:
        process.start(self.folder, self.config)

    def kill(self) -> None:
        if pid := pidfile.read(self.folder):
            os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while pidfile.read(self.folder) and time.monotonic() < deadline:
            time.sleep(0.01)

    @property
    def url(self) -> str:
        return access.read(self.folder)["url"]

    @property
    def link(self) -> str:
        return access.link(self.folder)

    def push(self, *rows: dict) -> None:
        """Rows of execution_logs, numbered on."""
        events = []
        for row in rows:
            self.pushed += 1
            common = {
                "id": self.pushed,
                "event_type": "BACKUP",
                "step_number": 1,
                "timestamp": "2026-11-29 20:12:02",
            }
            events.append(dict.fromkeys(COLUMNS) | common | row)
        answer = self.guest.post("/v1/events", json={"run_id": RUN_ID, "events": events})
        assert answer.status_code == 200, answer.text

    def browser(self, name: str = "ada") -> Browser:
        return Browser(self, name)


class Browser:
    """What a browser would keep: the cookie, and the proof that the page reads."""

    def __init__(self, served: Served, name: str) -> None:
        self.http = httpx2.Client(base_url=served.url, trust_env=False, timeout=20.0)
        token = access.read(served.folder)["token"]
        self.answer = self.http.post("/login", json={"token": token, "name": name})
        self.facts = self.http.get("/state").json()

    def order(self, name: str, **more: object) -> httpx2.Response:
        headers = {"x-lab-csrf": self.facts["csrf"]}
        return self.http.post("/command", json={"name": name, **more}, headers=headers)

    def stream(self, after: int, rows: int) -> list[dict]:
        """The next `rows` rows behind the place `after`, as the stream sends them."""
        found: list[dict] = []
        with self.http.stream("GET", "/events", headers={"last-event-id": str(after)}) as answer:
            kind = ""
            for line in answer.iter_lines():
                kind = line.removeprefix("event: ") if line.startswith("event: ") else kind
                if line.startswith("data: ") and kind == "row":
                    found.append(json.loads(line.removeprefix("data: ")))
                if len(found) >= rows:
                    return found
        return found


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    started: list[Served] = []

    def run(**changes: object) -> Served:
        one = Served(tmp_path / f"run{len(started)}", **changes)
        started.append(one)
        one.start()
        return one

    yield run
    for one in started:
        one.kill()
        one.guest.close()
