"""TESTS: the paid call before a run, against a loopback provider: what passes, and each refusal's words."""

from __future__ import annotations

import socket
import threading

import pytest

from labkit.errors import NOT_READY, LabError
from labkit.gateway import preflight

KEY = "sk-canary-7d1b0c5f2e"
CALLED = {"tool_calls": [{"id": "1", "type": "function", "function": {"name": "ready", "arguments": "{}"}}]}


def reply(message: dict, **usage: object) -> dict:
    message = {"role": "assistant", "content": None} | message
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {
        "id": "gen-1",
        "choices": [choice],
        "usage": {"prompt_tokens": 60, "completion_tokens": 9} | usage,
    }


@pytest.fixture
def ask(make_config, upstream):
    """Asks the loopback provider, whose reply the test has set."""

    def run(seconds: float = 10, **changes: object):
        ours = {"provider": "paid", "base_url": upstream.url, "key_env": "PAID_KEY"}
        return preflight.ask_all(make_config(**ours | changes), KEY, seconds)

    return run


def refusal(ask, **changes: object) -> LabError:
    with pytest.raises(LabError) as caught:
        ask(**changes)
    assert caught.value.code == NOT_READY
    return caught.value


def test_a_model_that_calls_the_tool_passes_and_its_cost_is_said(ask, upstream):
    upstream.answers(reply(CALLED, cost=0.000021))
    (answer,) = ask()
    assert answer.called_the_tool and answer.cost_usd == 0.000021
    assert "test/model called the tool" in answer.line() and "$0.000021" in answer.line()


def test_the_call_is_small_offers_one_tool_and_carries_the_key(ask, upstream):
    upstream.answers(reply(CALLED))
    ask()
    ((headers, body),) = upstream.seen
    assert {name.lower(): value for name, value in headers.items()}["authorization"] == f"Bearer {KEY}"
    assert len(body["tools"]) == 1 and body["max_completion_tokens"] <= 512


def test_a_model_that_answers_in_words_passes_too(ask, upstream):
    upstream.answers(reply({"content": "yes"}))
    (answer,) = ask()
    assert not answer.called_the_tool
    assert "answered in words" in answer.line() and "cost unknown" in answer.line()


def test_each_model_of_the_run_is_asked_once(ask, upstream):
    upstream.answers(reply(CALLED))
    ask(models=("one/worker", "two/inspector"))
    assert [body["model"] for _, body in upstream.seen] == ["one/worker", "two/inspector"]


@pytest.mark.parametrize(
    ("status", "said", "sentence", "cure"),
    [
        (401, "No auth credentials found", "does not take the key (401)", "PAID_KEY"),
        (402, "Insufficient credits", "out of credit (402)", "add credit"),
        (404, "No such model", "does not take the model test/model (404)", "--model"),
        (400, "test/model is not a valid model ID", "does not take the model test/model (400)", "run_model"),
        (404, "No endpoints found that support tool use", "no tool calling", "choose another model"),
        (403, "moderated", "does not let this key use", "rights"),
        (429, "slow down", "no more calls just now (429)", "wait a minute"),
        (503, "overloaded", "fails (503)", "--no-preflight"),
    ],
)
def test_each_refusal_of_a_provider_has_its_sentence_and_its_cure(
    ask, upstream, status, said, sentence, cure
):
    upstream.answers({"error": {"message": said}}, status)
    error = refusal(ask)
    assert sentence in error.message and said in error.message and cure in error.hint


def test_a_refusal_that_travels_in_a_200_is_seen(ask, upstream):
    upstream.answers({"error": {"message": "Insufficient credits", "code": 402}})
    assert "out of credit" in refusal(ask).message


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"", b'{"choices": []}', b"[1]"])
def test_what_is_no_such_reply_points_to_the_address(ask, upstream, body):
    upstream.answers(body)
    error = refusal(ask)
    assert upstream.url in error.message and "base_url" in error.hint


def test_a_provider_that_quotes_the_key_does_not_get_it_onto_the_terminal(ask, upstream):
    upstream.answers({"error": {"message": f"bad key {KEY}"}}, 401)
    assert KEY not in str(refusal(ask))


def test_a_provider_that_cannot_be_reached_is_named_with_its_address(ask):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/v1"
        error = refusal(ask, base_url=url)
    assert f"can't be reached at {url}" in error.message and "network" in error.hint


def test_a_provider_that_holds_its_answer_back_is_given_up(ask, upstream):
    upstream.answers(reply(CALLED))
    upstream.chunks = [b"{", b"}"]
    upstream.hold = threading.Event()
    assert "did not answer within" in refusal(ask, seconds=0.3).message
