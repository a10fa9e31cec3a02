"""TESTS: what passes the relay to a provider behind it and back, what it may cost, and that the key stays."""

from __future__ import annotations

import gzip
import json
import os
import threading
import time
from pathlib import Path

import httpx2
import pytest

from labkit.gateway import pidfile

CANARY = "sk-canary-8f1d77c0b2e94a55"
USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "prompt_tokens_details": {"cached_tokens": 60},
    "completion_tokens_details": {"reasoning_tokens": 5},
    "cost": 0.0125,
}
REPLY = {
    "id": "gen-1",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    "usage": USAGE,
    "provider_extra": {"kept": True},
}
STREAM = [
    b'data: {"id":"gen-2","choices":[{"index":0,"delta":{"content":"he"},"finish_reason":null}]}\n\n',
    b': a comment of the provider\n\ndata: {"id":"gen-2","choices":[{"index":0,"delta":{"cont',
    b'ent":"llo"},"finish_reason":"stop"}]}\n\n',
    b'data: {"id":"gen-2","choices":[],"usage":' + json.dumps(USAGE).encode() + b"}\n\ndata: [DONE]\n\n",
]


@pytest.fixture
def relay(run_gateway, upstream, monkeypatch):
    """A gateway in front of `upstream`, with the canary as its key."""
    monkeypatch.setenv("LAB_TEST_KEY", CANARY)

    def run(**changes):
        settings = {"provider": "paid", "base_url": upstream.url, "key_env": "LAB_TEST_KEY"}
        return run_gateway(**settings | changes)

    return run


@pytest.fixture(scope="module")
def shared_relay(tmp_path_factory, runner_at, shared_upstream):
    """One gateway and provider for the tests that each look at a single exchange."""
    with pytest.MonkeyPatch.context() as patch, runner_at(tmp_path_factory.mktemp("relay")) as run:
        patch.setenv("LAB_TEST_KEY", CANARY)
        yield run(provider="paid", base_url=shared_upstream.url, key_env="LAB_TEST_KEY", budget_usd=100.0)


@pytest.fixture
def exchange(shared_relay, shared_upstream):
    """(gateway, provider), the provider as new."""
    fresh = type(shared_upstream)(url=shared_upstream.url)
    vars(shared_upstream).update(vars(fresh))
    return shared_relay, shared_upstream


def wait_for_line(running, number: int) -> dict:
    deadline = time.monotonic() + 20
    while len(running.requests()) < number and time.monotonic() < deadline:
        time.sleep(0.05)
    return running.requests()[number - 1]


def test_a_reply_comes_back_as_the_provider_sent_it_and_is_written_down(exchange):
    running, upstream = exchange
    upstream.answers(REPLY)
    assert running.chat().json() == REPLY
    line = running.requests()[-1]
    assert line["purpose"] == "worker" and line["status"] == 200 and line["finish_reason"] == "stop"
    assert (line["prompt_tokens"], line["completion_tokens"], line["cached_tokens"]) == (100, 20, 60)
    assert line["cost_usd"] == line["charged_usd"] == 0.0125


def test_a_stream_comes_back_byte_for_byte_and_is_charged(relay, upstream):
    upstream.chunks, upstream.headers = STREAM, {"content-type": "text/event-stream"}
    running = relay()
    answer = running.chat(stream=True)
    assert answer.content == b"".join(STREAM)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert upstream.seen[0][1]["stream_options"] == {"include_usage": True}
    assert wait_for_line(running, 1)["cost_usd"] == 0.0125


def test_a_stream_reaches_the_guest_while_the_provider_still_writes(relay, upstream):
    upstream.chunks, upstream.headers = STREAM, {"content-type": "text/event-stream"}
    upstream.hold = threading.Event()
    running = relay()
    body = {"model": "test/model", "messages": [{"role": "user", "content": "x"}], "stream": True}
    with running.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        first = next(answer.iter_raw())
        assert b'"he"' in first and b"DONE" not in first
        upstream.hold.set()


def test_a_guest_that_hangs_up_during_a_stream_is_charged_the_worst_case(relay, upstream):
    upstream.chunks, upstream.headers = STREAM, {"content-type": "text/event-stream"}
    upstream.hold = threading.Event()
    running = relay()
    body = {"model": "test/model", "messages": [{"role": "user", "content": "x"}], "stream": True}
    with running.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        next(answer.iter_raw())
    line = wait_for_line(running, 1)
    assert line["status"] == "cut" and line["cost_usd"] is None
    assert line["charged_usd"] >= 4096 * 0.20 / 1e6


def test_the_provider_sees_the_key_and_never_the_run_token(exchange):
    running, upstream = exchange
    upstream.answers(REPLY)
    running.chat()
    headers, _ = upstream.seen[0]
    assert headers["authorization"] == f"Bearer {CANARY}"
    assert "run-token" not in json.dumps(upstream.seen)


def test_the_key_is_in_no_file_and_no_reply_even_when_the_provider_quotes_it(relay, upstream):
    running = relay()
    upstream.answers({"error": {"message": f"bad key {CANARY}"}}, status=401)
    answers = [running.chat()]
    upstream.chunks = [f'data: {{"key": "{CANARY[:9]}'.encode(), f'{CANARY[9:]}"}}\n\n'.encode()]
    upstream.status = 200
    answers.append(running.chat(stream=True))
    upstream.status, upstream.break_off = 500, True
    answers += [running.chat(), running.http.post("/v1/chat/completions", content=b"\x00")]
    running.stop()
    assert b"[key]" in answers[0].content and b"[key]" in answers[1].content
    assert all(CANARY.encode() not in answer.content for answer in answers)
    assert CANARY.encode() not in running.everything_written()


@pytest.mark.parametrize("stream", [False, True])
def test_the_key_is_in_no_header_that_is_passed_on(exchange, stream):
    running, upstream = exchange
    upstream.answers(REPLY, **{"content-type": f"application/json; {CANARY}", "retry-after": CANARY})
    reply = running.chat(stream=stream)
    assert reply.status_code == 200 and CANARY not in str(reply.headers)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads /proc")
def test_the_key_is_on_no_command_line(exchange):
    running, upstream = exchange
    command_line = Path(f"/proc/{pidfile.read(running.folder)}/cmdline").read_bytes()
    assert b"labkit.gateway" in command_line and CANARY.encode() not in command_line


@pytest.mark.parametrize("status", [400, 402, 429, 500, 503])
def test_an_error_of_the_provider_is_passed_on_and_costs_nothing(exchange, status):
    running, upstream = exchange
    upstream.answers({"error": {"message": "no", "code": status}}, status=status, **{"retry-after": "7"})
    answer = running.chat()
    assert answer.status_code == status and answer.json()["error"]["message"] == "no"
    assert answer.headers["retry-after"] == "7"
    assert running.requests()[-1]["charged_usd"] == 0


def test_an_error_page_in_html_is_passed_on_as_it_is(exchange):
    running, upstream = exchange
    upstream.answers(b"<html>Bad gateway</html>", status=502, **{"content-type": "text/html"})
    answer = running.chat()
    assert (answer.status_code, answer.text) == (502, "<html>Bad gateway</html>")


def test_an_error_inside_a_200_is_passed_on_and_counts_its_worst_case(exchange):
    running, upstream = exchange
    upstream.answers({"error": {"code": 502, "message": "upstream died"}})
    assert running.chat().json()["error"]["message"] == "upstream died"
    assert running.requests()[-1]["cost_usd"] is None
    assert running.requests()[-1]["charged_usd"] > 0


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 10**400, "completion_tokens": 1},
        {"prompt_tokens": 100, "completion_tokens": -1},
        {"prompt_tokens": "100", "completion_tokens": 1},
    ],
)
def test_figures_that_are_none_count_the_worst_case(exchange, usage):
    running, upstream = exchange
    upstream.answers(REPLY | {"usage": usage})
    assert running.chat().status_code == 200
    assert running.requests()[-1]["charged_usd"] > 0.0008


@pytest.mark.parametrize("cost", [10**400, -5, "0.5", True, 1e300])
def test_a_bill_that_is_none_counts_the_tokens(exchange, cost):
    running, upstream = exchange
    upstream.answers(REPLY | {"usage": USAGE | {"cost": cost}})
    assert running.chat().status_code == 200
    row = running.requests()[-1]
    assert (row["cost_usd"], row["charged_usd"]) == (None, 1.4e-5)


def test_a_reply_nested_ten_thousand_deep_is_passed_on_and_counts_its_worst_case(exchange):
    running, upstream = exchange
    upstream.answers(b"[" * 10_000 + b"]" * 10_000)
    assert running.chat().status_code == 200
    assert running.requests()[-1]["charged_usd"] > 0.0008


def test_a_reply_of_more_parts_than_replies_have_is_passed_on_unread_and_counts_its_worst_case(exchange):
    running, upstream = exchange
    upstream.answers(REPLY | {"more": [[]] * 300_000})
    assert running.chat().status_code == 200
    row = running.requests()[-1]
    assert row["cost_usd"] is None and row["charged_usd"] > 0.0008


def packed(data: bytes, times: int) -> bytes:
    for _ in range(times):
        data = gzip.compress(data)
    return data


ODD_REPLIES = [
    (packed(bytes(50 << 20), 3), "gzip, gzip, gzip"),  # some hundred bytes
    (packed(json.dumps(REPLY).encode(), 1), "gzip"),  # nobody asked for it
    (b"", "br"),
    (bytes(33 << 20), "identity"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("data", "encoding"), ODD_REPLIES, ids=["thrice", "gzip", "br", "large"])
def test_a_reply_that_is_packed_or_larger_than_any_is_cut_off(exchange, stream, data, encoding):
    running, upstream = exchange
    upstream.answers(data, **{"content-encoding": encoding})
    before = len(running.requests())
    answer = running.chat(stream=stream)
    begun = stream and encoding == "identity"  # its head is out by then, and nothing of it follows
    assert (answer.content == b"") if begun else (answer.json()["error"]["code"] == "cut")
    row = wait_for_line(running, before + 1)
    assert row["status"] == "cut" and row["charged_usd"] > 0.0008
    assert upstream.seen[0][0]["accept-encoding"] == "identity"


def test_a_stream_that_never_ends_its_line_is_cut_off(exchange):
    running, upstream = exchange
    upstream.answers(b"data: " + b"x" * (5 << 20), **{"content-type": "text/event-stream"})
    before = len(running.requests())
    assert running.chat(stream=True).content == b""
    assert wait_for_line(running, before + 1)["status"] == "cut"


def test_a_redirect_is_not_followed_and_not_passed_on(exchange):
    running, upstream = exchange
    upstream.answers(b"", status=307, location="http://elsewhere.invalid/")
    answer = running.chat()
    assert answer.status_code == 502 and "location" not in answer.headers
    assert len(upstream.seen) == 1


def test_a_provider_that_cannot_be_reached_costs_nothing(relay):
    running = relay(base_url="http://127.0.0.1:9/v1")
    answer = running.chat()
    assert answer.status_code == 502 and answer.json()["error"]["code"] == "provider_unreachable"
    assert running.requests()[0]["charged_usd"] == 0


def test_a_reply_that_breaks_off_is_charged_its_worst_case(exchange):
    running, upstream = exchange
    upstream.answers(REPLY)
    upstream.break_off = True
    assert running.chat().status_code == 502
    assert running.requests()[-1]["status"] == "cut" and running.requests()[-1]["charged_usd"] > 0


def test_without_a_bill_the_price_table_counts(exchange):
    running, upstream = exchange
    upstream.answers(REPLY | {"usage": {"prompt_tokens": 1_000_000, "completion_tokens": 100_000}})
    running.chat()
    assert running.requests()[-1]["cost_usd"] is None
    assert running.requests()[-1]["charged_usd"] == pytest.approx(0.12)


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"model": "other/model"}, 403, "model_not_allowed"),
        ({"model": "test/model:online"}, 403, "model_not_allowed"),
        ({"model": ["test/model"]}, 400, "bad_request"),
        ({"models": ["other/model"]}, 400, "bad_request"),
        ({"plugins": [{"id": "web"}]}, 400, "bad_request"),
        ({"n": 5}, 400, "bad_request"),
        ({"max_completion_tokens": 4097}, 400, "bad_request"),
        ({"max_completion_tokens": 0}, 400, "bad_request"),
        ({"max_tokens": 10**9}, 400, "bad_request"),
        ({"messages": "hello"}, 400, "bad_request"),
        ({"stream": True, "stream_options": "yes"}, 400, "bad_request"),
    ],
)
def test_what_the_run_may_not_ask_for_never_reaches_the_provider(exchange, change, status, code):
    running, upstream = exchange
    answer = running.chat(**change)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert upstream.seen == []


def test_the_last_of_two_models_in_a_body_is_both_checked_and_sent(exchange):
    running, upstream = exchange
    upstream.answers(REPLY)
    raw = b'{"model": "other/model", "messages": [], "model": "test/model"}'
    running.http.post("/v1/chat/completions", content=raw)
    assert upstream.seen[0][1]["model"] == "test/model"


def test_a_call_without_a_token_limit_gets_the_one_of_the_run(exchange):
    running, upstream = exchange
    upstream.answers(REPLY)
    running.chat()
    running.chat(max_completion_tokens=50)
    assert [body["max_completion_tokens"] for _, body in upstream.seen] == [4096, 50]


def test_the_budget_refuses_the_call_that_could_pass_the_cap(relay, upstream):
    upstream.answers(REPLY | {"usage": USAGE | {"cost": 0.4}})
    running = relay(budget_usd=0.81)
    assert [running.chat().status_code for _ in range(2)] == [200, 200]
    upstream.answers(REPLY | {"usage": USAGE | {"cost": 0.0099}})
    running.chat()
    refused = running.chat(messages=[{"role": "user", "content": "x" * 20_000}])
    assert refused.status_code == 402 and refused.json()["error"]["code"] == "budget_exhausted"
    assert "$0.81" in refused.json()["error"]["message"]
    assert len(upstream.seen) == 3


def test_calls_at_the_same_time_share_one_budget(relay, upstream):
    """Two worst cases do not fit at once: the second is refused while the first is under way."""
    upstream.answers(REPLY)
    upstream.hold = threading.Event()
    worst = 4096 * 0.20 / 1e6
    running = relay(budget_usd=worst * 1.5)
    first = threading.Thread(target=running.chat)
    first.start()
    deadline = time.monotonic() + 20
    while not upstream.seen and time.monotonic() < deadline:
        time.sleep(0.02)
    assert running.chat().status_code == 402
    upstream.hold.set()
    first.join()


def test_the_money_spent_survives_a_restart(relay, upstream):
    upstream.answers(REPLY | {"usage": USAGE | {"cost": 0.4}})
    running = relay(budget_usd=0.4005)
    assert running.chat().status_code == 200
    running.stop()
    running.start()
    assert running.chat().status_code == 402


def test_a_call_that_a_dead_gateway_left_behind_is_charged(relay, upstream):
    upstream.answers(REPLY)
    upstream.hold = threading.Event()
    running = relay()
    lost = threading.Thread(target=lambda: pytest.raises(httpx2.HTTPError, running.chat))
    lost.start()
    deadline = time.monotonic() + 20
    while not upstream.seen and time.monotonic() < deadline:
        time.sleep(0.02)
    running.kill()
    lost.join()
    running.start()
    (line,) = running.requests()
    assert line["status"] == "lost" and line["charged_usd"] > 0
    upstream.hold.set()
    assert running.chat().status_code == 200
    assert [line["id"] for line in running.requests()] == [1, 2]


def test_after_the_run_is_sealed_no_model_answers(relay, upstream, event):
    running = relay()
    running.push(event(1, event_type="RUN_SEALED", sanitized_output="{}"))
    answer = running.chat()
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "run_ended")
    assert upstream.seen == []
