"""TESTS: the page from another machine: who is let in, and a cable that is pulled out for a while."""

from __future__ import annotations

import json
import sys

import pytest
from other_machine import Visitor, connected, why_not

from labkit.gateway import commands
from labkit.gateway.page import access

pytestmark = pytest.mark.slow
NOT_THERE = (7, 28)  # exit codes of curl: nobody listens, nobody answers


@pytest.fixture(scope="module")
def other():
    if reason := why_not():
        pytest.skip(reason)
    with connected() as machine:
        yield machine


def asked(other, url: str, *more: str) -> tuple[int, str]:
    """(curl's exit code, the HTTP status)."""
    line = ("curl", "-s", "-m", "10", "--noproxy", "*", "-o", "/dev/null", "-w", "%{http_code}", *more, url)
    done = other.run(*line)
    return done.returncode, done.stdout


def test_a_person_at_another_machine_follows_orders_and_catches_up_after_a_cut(serve, other):
    served = serve(page_bind=other.here)
    assert served.url.startswith(f"http://{other.here}:")
    served.push(*[{"sanitized_output": f"before {n}"} for n in range(20)])
    visitor = Visitor(other, served.url, access.read(served.folder)["token"])
    try:
        assert visitor.next("login")["login"] == 200
        assert visitor.rows_upto(20) == list(range(1, 21))
        assert visitor.say("say", args={"text": "hello"}, why="from the sofa")["answered"] == 200
        (order,) = commands.listed(served.folder)
        assert (order["who"]["user"], order["who"]["from"]) == ("Ada", other.there)

        other.plug("down")
        served.push(*[{"sanitized_output": f"meanwhile {n}"} for n in range(300)])
        assert visitor.next("cut")["cut"]
        assert visitor.rows_upto(20) == list(range(1, 21)), "nothing came over a cable that was pulled out"
        other.plug("up")
        served.push({"sanitized_output": "afterwards"})
        assert visitor.rows_upto(321) == list(range(1, 322)), "no gap, none twice, in order"
        assert visitor.say("pause")["answered"] == 200
    finally:
        visitor.end()
        other.plug("up")


def test_nobody_at_another_machine_is_let_in_without_the_pages_own_token(serve, other):
    served = serve(page_bind=other.here)
    guests = ("-H", f"authorization: {served.guest.headers['authorization']}")
    for path in ("state", "events", "rows", "row/1"):
        assert asked(other, f"{served.url}{path}") == (0, "401")
        assert asked(other, f"{served.url}{path}", *guests) == (0, "401")
    for word in ("guest-token-of-this-test", "", access.read(served.folder)["token"][:-1]):
        login = ("-H", "content-type: application/json", "-d", json.dumps({"token": word}))
        assert asked(other, f"{served.url}login", *login) == (0, "401")
    for host in (
        "evil.example",
        f"{other.here}.evil.example",
        f"evil.example:{served.url.split(':')[2][:-1]}",
    ):
        assert asked(other, served.url, "-H", f"host: {host}") == (0, "421")
    assert asked(other, served.url) == (0, "200"), "the login page itself is anybody's"
    assert commands.listed(served.folder) == []


def test_unless_it_was_told_to_the_page_is_not_there_for_another_machine(serve, other):
    served = serve()
    port = served.url.split(":")[2].rstrip("/")
    assert served.browser().answer.status_code == 200, "it is there for this one"
    for address in (f"{other.here}:{port}/", f"{other.here}:{served.config.port}/healthz"):
        assert asked(other, f"http://{address}")[0] in NOT_THERE
    route = ("-c", f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)")
    assert "refused" in other.run(sys.executable, *route).stderr.lower(), "its own loopback is another"
