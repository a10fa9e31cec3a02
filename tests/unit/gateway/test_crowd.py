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


def dial(port: int, data: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=40)
    connection.sendall(data)
    return connection


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


@pytest.fixture
def slow_app(monkeypatch):
    """A server with a short patience, and an app that takes longer than it to answer; yields its port."""
    monkeypatch.setattr(crowd, "HEAD_SECONDS", 2.0)

    async def app(scope, receive, send):
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


@pytest.mark.parametrize("said", [b"", PARTIAL])
def test_a_connection_on_which_no_request_comes_is_closed(slow_app, said):
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
    assert len(asyncio.run(bodies.read(flood(10)))) == 10 << 20 and bodies.waiting == 0


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
