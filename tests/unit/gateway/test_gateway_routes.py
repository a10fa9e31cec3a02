"""TESTS: what the guest can ask of a running gateway, and what it is refused."""

from __future__ import annotations

import contextlib
import json

import httpx2
import pytest

from labkit.errors import LabError
from labkit.gateway import commands

CLOSED_ROUTES = [("POST", "/v1/chat/completions"), ("POST", "/v1/events"), ("GET", "/v1/commands?after=0")]


@pytest.fixture
def running(run_gateway):
    return run_gateway()


@pytest.mark.parametrize(
    "header", [None, "Bearer wrong", "Bearer x y", "Basic cnVu", "run-token-of-this-test"]
)
def test_only_the_token_opens_a_route(shared, header):
    headers = {"authorization": header} if header else {}
    with httpx2.Client(base_url=shared.url, headers=headers, trust_env=False) as stranger:
        answers = [stranger.request(method, path, content=b"{}") for method, path in CLOSED_ROUTES]
    assert [answer.status_code for answer in answers] == [401] * 3
    assert all(answer.json()["error"]["code"] == "bad_token" for answer in answers)


def test_the_health_route_tells_a_stranger_nothing_of_the_run(shared):
    assert httpx2.get(shared.url + "/healthz", trust_env=False).json() == {"status": "ok"}


def test_an_oversized_body_is_refused_before_it_is_read_whole(shared):
    endless, length = (b"x" * 65536 for _ in range(21 * 16)), {"content-length": str(21 << 20)}
    with contextlib.suppress(httpx2.WriteError, httpx2.ReadError):  # hanging up on us is a refusal as well
        assert shared.http.post("/v1/events", content=endless, headers=length).status_code == 413
    assert shared.http.get("/v1/commands?after=0").status_code == 200


def test_events_pushed_twice_are_held_once(running, event):
    rows = [event(1), event(2, sanitized_output="snow ☃ \ud800 \u2028 line\nbreak")]
    raw = json.dumps({"run_id": running.config.run_id, "events": rows})
    for _ in range(2):
        assert running.http.post("/v1/events", content=raw).json() == {"watermark": 2}
    held = [json.loads(line) for line in (running.folder / "events.jsonl").read_text().splitlines()]
    assert held == rows


def test_the_watermark_stops_at_a_gap_and_jumps_when_it_is_filled(running, event):
    assert running.push(event(1), event(3), event(4)).json() == {"watermark": 1}
    assert running.push(event(2)).json() == {"watermark": 4}


def test_an_empty_push_asks_for_the_watermark(running, event):
    running.push(event(1))
    assert running.push().json() == {"watermark": 1}


def test_the_watermark_survives_a_restart(running, event):
    running.push(event(1), event(2), event(5))
    running.stop()
    running.start()
    assert running.push(event(2), event(3), event(4)).json() == {"watermark": 5}
    assert len((running.folder / "events.jsonl").read_text().splitlines()) == 5


def test_events_of_another_run_are_a_conflict(shared, event):
    answer = shared.push(event(1), run_id="20260101-000000-000000")
    assert answer.status_code == 409
    assert (shared.folder / "events.jsonl").read_text() == ""


@pytest.mark.parametrize(
    "change",
    [
        {"id": 0},
        {"id": "1"},
        {"id": True},
        {"id": 2**60},
        {"extra": 1},
        {"cost_usd": {}},
        {"step_number": 10**30},
    ],
)
def test_a_row_that_is_no_row_of_execution_logs_stores_nothing_of_its_batch(shared, event, change):
    answer = shared.push(event(1), event(2) | change)
    assert answer.status_code == 400
    assert (shared.folder / "events.jsonl").read_text() == ""


@pytest.mark.parametrize("raw", [b"", b"[1]", b"{", b'{"run_id": 1}', b"[" * 100_000, b"\xff\xfe"])
def test_a_body_that_is_no_push_is_a_bad_request_and_the_gateway_goes_on(shared, raw):
    assert shared.http.post("/v1/events", content=raw).status_code in (400, 409)
    assert shared.push().status_code == 200


def test_a_number_that_json_does_not_have_is_refused(shared, event):
    for number in ("NaN", "1e999", "-Infinity"):
        row = json.dumps(event(1)).replace('"cost_usd": null', f'"cost_usd": {number}')
        raw = f'{{"run_id": "{shared.config.run_id}", "events": [{row}]}}'
        assert shared.http.post("/v1/events", content=raw).status_code == 400


def test_a_command_given_in_another_process_reaches_the_guest_once(running):
    assert running.http.get("/v1/commands?after=0").json() == {"commands": []}
    assert commands.append(running.folder, "finish") == 1
    answer = running.http.get("/v1/commands?after=0").json()
    assert answer == {"commands": [{"id": 1, "name": "finish", "args": {}}]}
    assert running.http.get("/v1/commands?after=1").json() == {"commands": []}


@pytest.mark.parametrize("after", ["-1", "x", "1.5", "٣", "9" * 40])
def test_a_watermark_that_is_no_number_is_a_bad_request(shared, after):
    assert shared.http.get("/v1/commands", params={"after": after}).status_code == 400


def test_only_known_commands_can_be_given(tmp_path):
    with pytest.raises(LabError, match="no command is called 'explode'"):
        commands.append(tmp_path, "explode")


def test_the_rehearsal_pages_are_served_without_a_token_and_nothing_else_is(shared):
    with httpx2.Client(base_url=shared.url, trust_env=False) as guest:
        assert "fsync" in guest.get("/rehearsal/pages/fsync-notes.html").text
        assert "ignore all previous instructions" in guest.get("/rehearsal/pages/speed-tricks.html").text
        for path in ("/rehearsal/pages/..%2fscript.html", "/rehearsal/pages/none.html", "/", "/docs"):
            assert guest.get(path).status_code == 404


def test_with_another_provider_there_are_no_rehearsal_pages(run_gateway, upstream):
    running = run_gateway(provider="local", base_url=upstream.url)
    assert running.http.get("/rehearsal/pages/fsync-notes.html").status_code == 404
