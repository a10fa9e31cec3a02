"""TESTS: a guest gone wild, root and hostile: what it can take of the gateway, and of the page beside it."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import time
import tracemalloc
from contextlib import ExitStack

import pytest
import uvicorn
from loopback import free_port, until

from labkit.gateway import crowd, listening, pidfile
from labkit.gateway.refusal import Refusal

PARTIAL = b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: "
POST = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: 50000\r\n\r\n{"  # and no more of it


def dial(port: int, data: bytes = b"", source: str = "127.0.0.1") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=40, source_address=(source, 0))
    connection.sendall(data)
    return connection


def ask(connection: socket.socket, port: int, path: str = "/") -> bytes:
    """The head of the answer; its body is read too."""
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    data = b""
    while b"\r\n\r\n" not in data and (more := connection.recv(1000)):
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    left = int(head.lower().partition(b"content-length: ")[2].split()[0]) - len(body)
    while left > 0 and (more := connection.recv(left)):
        left -= len(more)
    return head


def until_closed(connection: socket.socket, more: bytes = b"") -> bytes:
    """What is heard while MORE is said again and again, until the other side ends it; TimeoutError else."""
    heard, deadline = b"", time.monotonic() + 30  # s; a server that reads on for ever is what is looked for
    connection.settimeout(0.05)
    while time.monotonic() < deadline:
        try:
            connection.sendall(more)
            piece = connection.recv(1000)
            if not piece:
                return heard
            heard += piece
        except TimeoutError:
            continue
        except OSError:
            return heard
    raise TimeoutError


def test_a_guest_that_holds_a_thousand_connections_does_not_close_the_page_to_its_person(run_gateway):
    """Each of them speaks half a request and waits."""
    running = run_gateway(page_bind="127.0.0.1", page_port=(page := free_port()))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.prlimit(pidfile.read(running.folder), resource.RLIMIT_NOFILE, (1024, hard))  # as is usual
    more = min(hard, max(soft, 8192))  # this process may hold some of earlier tests
    resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
    try:
        with ExitStack() as stack:
            for _ in range(1100):
                stack.enter_context(dial(running.config.port, PARTIAL))
            asks = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{page}\r\nConnection: close\r\n\r\n"
            with dial(page, asks.encode()) as person:
                assert person.recv(100).startswith(b"HTTP/1.1 200")
        until(lambda: running.chat().status_code == 200)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_idle_connections_and_half_said_logins_do_not_close_the_page_to_a_person(run_gateway):
    """Another user of this machine needs no token for them."""
    run_gateway(page_bind="127.0.0.1", page_port=(page := free_port()))
    with ExitStack() as stack:
        for _ in range(80):
            stack.enter_context(dial(page))
            stack.enter_context(dial(page, POST % (b"/login", page)))
        person = stack.enter_context(dial(page))
        assert ask(person, page).startswith(b"HTTP/1.1 200")


def test_who_holds_too_many_connections_loses_the_oldest_of_its_own_and_no_one_elses(run_gateway):
    port = run_gateway().config.port
    with ExitStack() as stack:
        another = stack.enter_context(dial(port, source="127.0.0.2"))
        assert ask(another, port, "/healthz").startswith(b"HTTP/1.1 200")
        held = [stack.enter_context(dial(port)) for _ in range(crowd.MOST_OF_ONE + 1)]
        assert held[0].recv(10) == b""
        assert ask(held[-1], port, "/healthz").startswith(b"HTTP/1.1 200")
        assert ask(another, port, "/healthz").startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("length", "more", "code"),
    [
        (b"Content-Length: 900000000000", b"x" * 1000, b"401"),
        (b"Transfer-Encoding: chunked", b"1\r\nx\r\n" * 200, b"400"),
    ],
    ids=["without a token", "in chunks of a byte"],
)
def test_a_body_that_was_refused_is_not_read_on(run_gateway, length, more, code):
    """Whoever has no token could otherwise keep the process reading; chunks cost it a thousand times more."""
    head = b"POST /v1/events HTTP/1.1\r\nHost: a\r\n" + length + b"\r\n\r\n"
    with dial(run_gateway().config.port, head) as connection:
        answer = until_closed(connection, more)
    assert answer.startswith(b"HTTP/1.1 " + code) or not answer  # what was sent meanwhile may have cut it off


@pytest.mark.parametrize("head", [b"A: b\r\n" * 200, b"A: " + b"b" * 40_000 + b"\r\n"])
def test_a_request_with_an_endless_head_is_refused(run_gateway, head):
    port = run_gateway().config.port
    with dial(port, b"GET /healthz HTTP/1.1\r\nHost: a\r\n" + head + b"\r\n") as connection:
        assert not until_closed(connection).startswith(b"HTTP/1.1 200")


@pytest.fixture
def slow_app(monkeypatch):
    """A server with a short patience, and an app that takes longer than it to answer; yields its port.

    What is posted to it, it reads first.
    """
    monkeypatch.setattr(crowd, "HEAD_SECONDS", 2.0)

    async def app(scope, receive, send):
        while scope["method"] == "POST" and (message := await receive()).get("more_body", True):
            if message["type"] == "http.disconnect":
                return
        await asyncio.sleep(3.0)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def within(talk):
        listener = listening.listen("127.0.0.1", 0)
        port = listener.getsockname()[1]
        serving = uvicorn.Server(
            uvicorn.Config(app, http=crowd.Patient, ws="none", lifespan="off", log_config=None)
        )
        task = asyncio.create_task(serving.serve(sockets=[listener]))
        try:
            return await asyncio.to_thread(talk, port)
        finally:
            serving.should_exit = True
            await task

    return lambda talk: asyncio.run(within(talk))


@pytest.mark.parametrize("said", [b"", PARTIAL, POST % (b"/", 1)])
def test_a_connection_on_which_no_request_comes_to_its_end_is_closed(slow_app, said):
    def talk(port):
        with dial(port, said) as connection:
            return connection.recv(10)

    assert slow_app(talk) == b""


def whole(connection: socket.socket) -> bytes:
    """An answer of the slow app: its head and its body come apart or together."""
    data = b""
    while not data.endswith(b"ok") and (more := connection.recv(200)):
        data += more
    return data


def test_a_request_that_takes_its_time_is_answered_and_its_connection_stays_for_the_next(slow_app):
    def talk(port):
        with dial(port) as connection:
            answers = []
            for _ in range(2):
                connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                answers.append(whole(connection))
                time.sleep(0.1)
            return answers

    assert all(answer.startswith(b"HTTP/1.1 200") for answer in slow_app(talk))


@pytest.mark.parametrize("path", ["/v1/events", "/v1/chat/completions", "/v1/commands/ack"])
def test_a_body_of_millions_of_parts_is_refused_unread(shared, path):
    """Reading it would hold up the page and the watchdog, who live in the same thread."""
    reply = shared.http.post(path, content=b"[" + b"[]," * 2_000_000 + b"[]]")
    assert reply.status_code == 400 and "lists and objects" in reply.json()["error"]["message"]


def test_a_body_that_comes_in_crumbs_takes_no_more_memory_than_one_that_comes_whole():
    """The limit of all bodies together counts bytes: an object for each two would be sixty times that."""
    size, left = 400_000, iter(range(200_000 - 1, -1, -1))

    async def receive() -> dict:
        return {"type": "http.request", "body": bytes(bytearray(b"{}")), "more_body": next(left) > 0}

    tracemalloc.start()
    try:
        assert len(asyncio.run(crowd.Bodies().read(receive))) == size
        assert tracemalloc.get_traced_memory()[1] < 6 * size
    finally:
        tracemalloc.stop()


def flood(pieces: int):
    """A request's body that comes in pieces of a megabyte."""
    left = iter(range(pieces - 1, -1, -1))

    async def receive() -> dict:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": bytes(1 << 20), "more_body": next(left) > 0}

    return receive


def test_many_large_bodies_at_once_are_refused_and_room_is_there_again_afterwards(monkeypatch):
    monkeypatch.setattr(crowd, "MOST_WAITING", 20 << 20)
    bodies = crowd.Bodies()

    async def all_at_once():
        return await asyncio.gather(*(bodies.read(flood(10)) for _ in range(5)), return_exceptions=True)

    refused = [one for one in asyncio.run(all_at_once()) if isinstance(one, Refusal)]
    assert {(one.status, one.code) for one in refused} == {(503, "gateway_busy")}
    assert bodies.waiting == (5 - len(refused)) * (10 << 20)
    bodies.done(bodies.waiting)
    assert len(asyncio.run(bodies.read(flood(10)))) == 10 << 20


def test_the_same_line_again_and_again_does_not_fill_the_log(capsys):
    handler = logging.StreamHandler()
    handler.addFilter(crowd.Repeats())
    log = logging.Logger("wild")
    log.addHandler(handler)
    for number in range(5000):
        log.warning("request %d: odd", number)
    log.warning("another line")
    said = capsys.readouterr().err.splitlines()
    assert len(said) == crowd.MOST_LINES + 5 + 1
    assert said[-1] == "another line" and said[-2] == "request 4999: odd (no. 5000 of its kind)"
