"""TESTS: real gateway processes on loopback ports, and a tiny provider to put behind them.

The fixtures are imported by a conftest, or named as `pytest_plugins` by a module.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import openai
import pytest
from loopback import RUN_ID, gateway_config

from labkit.gateway import pidfile, process
from labkit.gateway.config import GatewayConfig
from labkit.gateway.rows import COLUMNS

TOKEN = "run-token-of-this-test"


@pytest.fixture(scope="session")
def make_config() -> Callable[..., GatewayConfig]:
    def make(**changes: object) -> GatewayConfig:
        ours = {"models": ("test/model",), "max_completion_tokens": 4096, "rehearsal_latency_seconds": 0.0}
        return gateway_config(TOKEN, **ours | changes)

    return make


@dataclass
class Running:
    """A gateway process of its own, and ways to talk to it as the guest does."""

    folder: Path
    config: GatewayConfig

    def __post_init__(self) -> None:
        self.url = f"http://127.0.0.1:{self.config.port}"
        headers = {"authorization": f"Bearer {TOKEN}"}
        self.http = httpx2.Client(base_url=self.url, headers=headers, trust_env=False, timeout=20.0)
        self.openai = openai.OpenAI(
            base_url=self.url + "/v1",
            api_key=TOKEN,
            max_retries=0,
            timeout=20.0,
            http_client=openai.DefaultHttpxClient(trust_env=False),
        )

    def start(self) -> int:
        return process.start(self.folder, self.config)

    def stop(self) -> bool:
        return process.stop(self.folder)

    def kill(self) -> None:
        """As by a crash; returns when the process is gone, which takes a moment on a busy machine."""
        if pid := pidfile.read(self.folder):
            os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while pidfile.read(self.folder) and time.monotonic() < deadline:
            time.sleep(0.01)

    def chat(self, **changes: object) -> httpx2.Response:
        body = {"model": "test/model", "messages": [{"role": "user", "content": "hello"}], "user": "worker"}
        return self.http.post("/v1/chat/completions", json=body | changes)

    def push(self, *rows: dict, run_id: str = RUN_ID) -> httpx2.Response:
        return self.http.post("/v1/events", json={"run_id": run_id, "events": list(rows)})

    def requests(self) -> list[dict]:
        return [json.loads(line) for line in (self.folder / "requests.jsonl").read_text().splitlines()]

    def everything_written(self) -> bytes:
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        return b"".join(path.read_bytes() for path in files)


@contextlib.contextmanager
def runner(folder: Path, make: Callable[..., GatewayConfig]) -> Iterator[Callable[..., Running]]:
    with contextlib.ExitStack() as stack:

        def run(**changes: object) -> Running:
            running = Running(folder, make(**changes))
            running.start()
            stack.callback(running.kill)  # faster than stop, and nothing may depend on a clean end
            stack.callback(running.http.close)
            stack.callback(running.openai.close)
            return running

        yield run


@pytest.fixture(scope="session")
def runner_at(make_config: Callable[..., GatewayConfig]) -> Callable:
    """For module-wide gateways: a context manager that starts them in a folder of one's choice."""
    return lambda folder: runner(folder, make_config)


@pytest.fixture
def run_gateway(
    tmp_path: Path, make_config: Callable[..., GatewayConfig]
) -> Iterator[Callable[..., Running]]:
    """Starts a gateway with settings of its own."""
    with runner(tmp_path / "run", make_config) as run:
        yield run


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, make_config: Callable[..., GatewayConfig]
) -> Iterator[Running]:
    """One rehearsal gateway for the tests of a module that change nothing in it."""
    with runner(tmp_path_factory.mktemp("shared"), make_config) as run:
        yield run()


@dataclass
class Upstream:
    """A provider that answers what the test says: (status, headers, body chunks), one for every call."""

    url: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "application/json"})
    chunks: list[bytes] = field(default_factory=list)
    break_off: bool = False  # close the connection before the announced end
    hold: threading.Event | None = None  # wait for it before the last chunk
    seen: list[tuple[dict, dict]] = field(default_factory=list)  # (headers, body) of each call
    secure: Callable[[ssl.SSLContext], None] | None = None  # from then on it speaks https

    def answers(self, body: object, status: int = 200, **headers: str) -> None:
        self.status, self.chunks = status, [body if isinstance(body, bytes) else json.dumps(body).encode()]
        self.headers = {"content-type": "application/json"} | headers

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers["content-length"])
        self.seen.append((dict(handler.headers), json.loads(handler.rfile.read(length))))
        handler.send_response(self.status)
        for name, value in self.headers.items():
            handler.send_header(name, value)
        total = sum(map(len, self.chunks)) + (100 if self.break_off else 0)
        handler.send_header("content-length", str(total))
        handler.end_headers()
        for index, chunk in enumerate(self.chunks):
            if self.hold and index == len(self.chunks) - 1:
                self.hold.wait(20)
            handler.wfile.write(chunk)
            handler.wfile.flush()
        handler.close_connection = True


@contextlib.contextmanager
def serving() -> Iterator[Upstream]:
    state = Upstream()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # noqa: N802 - the name is http.server's
            with contextlib.suppress(ConnectionError):
                state.handle(self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_port}/v1"

    def secure(context: ssl.SSLContext) -> None:
        server.socket = context.wrap_socket(server.socket, server_side=True)

    state.secure = secure
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield state
    if state.hold:
        state.hold.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with serving() as state:
        yield state


@pytest.fixture(scope="module")
def shared_upstream() -> Iterator[Upstream]:
    with serving() as state:
        yield state


@pytest.fixture
def event() -> Callable[..., dict]:
    def make(event_id: int, **values: object) -> dict:
        return dict.fromkeys(COLUMNS) | {"id": event_id, "event_type": "BACKUP", "step_number": 1} | values

    return make
