"""TESTS: two hundred shapes of a request; only the permitted ones reach the provider, and as they were."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from gateway_in_process import TOKEN, InProcess, ScriptedProvider, answer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labkit.gateway import shapes

LIMIT = 4096
USER = {"role": "user", "content": "x"}
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
ADDRESS = {"url": "http://192.168.150.1:8000/x"}


def message(**values: object) -> dict:
    return {"messages": [USER | values]}


PERMITTED = [
    {},
    *({"user": word} for word in ("worker", "inspector", "digest", "report", "anything else", "", None)),
    *({"max_completion_tokens": number} for number in (1, 2, 4095, LIMIT, None)),
    *({"max_tokens": number} for number in (1, LIMIT, None)),
    *({"temperature": number} for number in (0, 0.5, 1, 2, None)),
    *({"top_p": number} for number in (0, 0.5, 1)),
    *({name: number} for name in ("frequency_penalty", "presence_penalty") for number in (-2, 0, 2)),
    *({"stop": stop} for stop in ("x", [], ["a", "b"], None)),
    *({"seed": seed} for seed in (0, -1, 2**40)),
    *({"tool_choice": choice} for choice in ("auto", "none", "required")),
    {"tool_choice": {"type": "function", "function": {"name": "f"}}},
    {"tools": []},
    {"tools": [TOOL]},
    {"tools": [TOOL, TOOL], "parallel_tool_calls": True},
    {"tools": [{"type": "function", "function": {"name": "f", "description": "d", "strict": True}}]},
    *({"response_format": {"type": kind}} for kind in ("text", "json_object")),
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}},
    *({"reasoning_effort": effort} for effort in shapes.EFFORTS),
    *({"reasoning": value} for value in ({}, {"effort": "low"}, {"max_tokens": 5}, {"exclude": True})),
    {"usage": {"include": True}},
    message(content="{" * 200_000),
    message(tool_calls=[CALL] * 10_000),
    *(message(role=role) for role in ("system", "developer", "user", "assistant")),
    *(message(content=content) for content in (None, "", "\U0001f600", [], [{"type": "text", "text": "x"}])),
    message(name="n"),
    {"messages": []},
    {"messages": [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}]},
    {"messages": [{"role": "tool", "tool_call_id": "a", "content": "r"}]},
    {"messages": [USER] * 500},
]

REFUSED = [
    {"\ud800": 1},
    *({name: 10**400} for name in ("temperature", "top_p", "presence_penalty")),
    *(
        {"model": model}
        for model in ("other", "test/model:online", "TEST/MODEL", " test/model", "", None, 5, [], {})
    ),
    {"models": ["test/model"]},
    {"route": "fallback"},
    {"plugins": [{"id": "web"}]},
    {"plugins": []},
    {"provider": {"order": ["x"]}},
    {"transforms": ["middle-out"]},
    {"preset": "x"},
    {"n": 1},
    {"n": 5},
    {"best_of": 2},
    {"logprobs": True},
    {"logit_bias": {}},
    {"prediction": {}},
    {"store": True},
    {"metadata": {}},
    {"service_tier": "priority"},
    {"modalities": ["audio"]},
    {"audio": {}},
    {"web_search_options": {}},
    {"functions": []},
    {"function_call": "auto"},
    {"prompt": "x"},
    {"input": "x"},
    {"background": True},
    {"previous_response_id": "x"},
    {"extra_body": {}},
    {"x" * 500: 1},
    {"": 1},
    *({"max_completion_tokens": number} for number in (0, -1, LIMIT + 1, 10**9, 1.5, "5", True, [], {})),
    *({"max_tokens": number} for number in (0, -1, LIMIT + 1, 10**12, 0.5, "1", False)),
    {"max_tokens": 5, "max_completion_tokens": LIMIT + 1},
    *({"reasoning": {"max_tokens": number}} for number in (0, -1, LIMIT + 1, "5", True)),
    *(
        {"reasoning": value}
        for value in ("high", [], {"effort": "endless"}, {"price": 1}, {"exclude": "yes"})
    ),
    *({"reasoning_effort": value} for value in ("endless", 5, [])),
    *({"temperature": value} for value in (-0.1, 2.1, "1", True, [])),
    *({"top_p": value} for value in (-0.1, 1.1, "1")),
    *({name: value} for name in ("frequency_penalty", "presence_penalty") for value in (-2.1, 3, "0")),
    *({"stop": value} for value in (5, [5], {}, ["x"] * 17)),
    *({"seed": value} for value in (1.5, "1", 2**70, True)),
    *({"stream": value} for value in ("yes", 1, [], {})),
    *({"stream_options": value} for value in ("x", [], {"include_usage": True, "other": 1})),
    *({"usage": value} for value in (True, [], {"include": True, "more": 1})),
    *({"user": value} for value in (5, [], {}, "x" * 65)),
    *({"parallel_tool_calls": value} for value in ("yes", 1)),
    *(
        {"tool_choice": value}
        for value in ("any", 5, {}, {"type": "web_search"}, {"type": "function", "name": "f"})
    ),
    *({"tools": value} for value in ("f", {}, [5], [{}], [TOOL] * 129)),
    *(
        {"tools": [{"type": kind}]}
        for kind in ("web_search", "openrouter:web_search", "code_interpreter", "function")
    ),
    {"tools": [{"type": "mcp", "server_url": "http://192.168.150.1"}]},
    {"tools": [TOOL | {"more": 1}]},
    {"tools": [{"type": "function", "function": {"name": 5}}]},
    {"tools": [{"type": "function", "function": {"name": "f", "parameters": "x"}}]},
    {"tools": [{"type": "function", "function": {"name": "f", "url": "x"}}]},
    *(
        {"response_format": value}
        for value in ("json", [], {"type": "grammar"}, {"type": "text", "more": 1}, {})
    ),
    *({"messages": value} for value in (None, "x", 5, {}, [5], ["x"], [None], [[]])),
    {"messages": [USER] * 10_001},
    *(message(role=role) for role in (None, "function", "inspector", 5, "USER")),
    *(message(content=content) for content in (5, True, {}, [5], ["x"], [{}])),
    message(content=[{"type": "image_url", "image_url": ADDRESS}]),
    message(content=[{"type": "input_audio", "input_audio": {}}]),
    message(content=[{"type": "file", "file": ADDRESS}]),
    message(content=[{"type": "video_url", "video_url": ADDRESS}]),
    message(content=[{"type": "text", "text": "x", "cache_control": {}}]),
    message(content=[{"type": "text", "text": 5}]),
    message(content=[{"type": "text", "text": "x"}, {"type": "image_url", "image_url": ADDRESS}]),
    message(images=[ADDRESS]),
    message(audio={"id": "x"}),
    message(name=5),
    message(tool_call_id=5),
    message(tool_calls="x"),
    message(tool_calls=[5]),
    message(tool_calls=[{"id": "a"}]),
    message(tool_calls=[CALL | {"type": "custom"}]),
    message(tool_calls=[CALL | {"more": 1}]),
    message(tool_calls=[{"function": {"name": "f", "arguments": {}}}]),
    # What would take the process seconds to check and hash:
    {"messages": [USER | {"tool_calls": [CALL] * 101}] * 100},
    {"messages": [USER | {"content": [{"type": "text", "text": "x"}] * 101}] * 100},
    message(content="{" * 250_000),
    {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"a": [[]] * 250_000}}}]},
]
ODD_BYTES = [
    b"",
    b"\x00",
    b"null",
    b"[]",
    b'"x"',
    b"5",
    b"{",
    b"{}",
    b"[" * 100_000,
    b'{"model": NaN}',
    b"\xff\xfe",
]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, make_config):
    config = make_config(provider="paid", base_url="http://provider.invalid/v1", budget_usd=1000.0)
    return InProcess(
        tmp_path_factory.mktemp("shapes") / "run", config, ScriptedProvider(lambda body: answer())
    )


def test_there_are_two_hundred_shapes():
    assert len(PERMITTED) + len(REFUSED) + len(ODD_BYTES) >= 200


@pytest.mark.parametrize("change", PERMITTED, ids=lambda change: json.dumps(change)[:50])
def test_a_permitted_shape_reaches_the_provider_as_it_is(gateway, change):
    sent = len(gateway.provider.seen)
    assert gateway.chat(**change).status_code == 200
    (body,) = gateway.provider.seen[sent:]
    assert {name: body[name] for name in change if change[name] is not None and "max" not in name} == {
        name: value for name, value in change.items() if value is not None and "max" not in name
    }
    assert 1 <= body["max_completion_tokens"] <= LIMIT


@pytest.mark.parametrize("change", REFUSED, ids=lambda change: json.dumps(change)[:50])
def test_a_shape_that_is_not_permitted_never_reaches_the_provider(gateway, change):
    sent, spent = len(gateway.provider.seen), gateway.budget.spent
    reply = gateway.chat(**change)
    assert reply.status_code in (400, 403)
    assert reply.json()["error"]["code"] in ("bad_request", "model_not_allowed")
    assert (len(gateway.provider.seen), gateway.budget.spent, gateway.budget.reserved) == (sent, spent, 0)


@pytest.mark.parametrize("asked", [{}, {"include": False}, {"include": "no"}])
def test_a_guest_cannot_ask_a_provider_to_keep_what_a_call_costs_to_itself(gateway, asked):
    sent = len(gateway.provider.seen)
    assert gateway.chat(usage=asked).status_code == 200
    assert gateway.provider.seen[sent:][0]["usage"] == {"include": True}


@pytest.mark.parametrize("raw", ODD_BYTES, ids=lambda raw: repr(raw[:20]))
def test_bytes_that_are_no_request_are_a_bad_request(gateway, raw):
    sent = len(gateway.provider.seen)
    reply = gateway.post("/v1/chat/completions", raw)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "bad_request")
    assert len(gateway.provider.seen) == sent


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**6) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from([*shapes.FIELDS, "n", "plugins", "models", "route"]) | st.text(max_size=6)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    change=st.dictionaries(NAMES, JSON, max_size=3),
    extra=st.dictionaries(st.text(max_size=8), JSON, max_size=2),
)
def test_whatever_passes_has_only_known_fields_texts_and_one_model(change, extra):
    body = {"model": "test/model", "messages": [USER | extra]} | change
    try:
        passed = shapes.parsed(json.dumps(body).encode())
    except shapes.BadShape:
        return
    assert set(passed) <= shapes.FIELDS and isinstance(passed["model"], str)
    for part in passed["messages"]:
        assert set(part) <= shapes.MESSAGE_FIELDS
        assert isinstance(part.get("content"), str | list | None)


def test_the_token_is_good_from_the_guests_address_only(tmp_path, make_config):
    config = make_config(guest_address="192.168.150.17")
    gateway = InProcess(tmp_path / "run", config, ScriptedProvider(lambda body: answer()))
    events = {"run_id": config.run_id, "events": []}
    for source, status in (("192.168.150.17", 200), ("::ffff:192.168.150.17", 200), ("192.168.150.18", 403)):
        assert gateway.post("/v1/events", events, source).status_code == status
    refused = gateway.post("/v1/chat/completions", {}, "127.0.0.1")
    assert refused.json()["error"]["code"] == "wrong_source"
    assert gateway.post("/v1/events", events, "127.0.0.1", token="wrong").status_code == 401


def test_the_token_dies_when_the_guest_is_silent_and_lives_while_it_speaks(
    tmp_path, make_config, monkeypatch
):
    now = [1000.0]
    monkeypatch.setattr("labkit.gateway.admission.time", SimpleNamespace(monotonic=lambda: now[0]))
    gateway = InProcess(
        tmp_path / "run", make_config(token_life_seconds=50.0), ScriptedProvider(lambda body: answer())
    )
    for _ in range(4):
        now[0] += 20
        assert gateway.chat().status_code == 200, "each call renews it"
    now[0] += 51
    refused = gateway.chat()
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "token_expired")
    gateway.restart()
    assert gateway.chat().status_code == 200, "a gateway that starts again begins a new life"


def test_after_the_wall_limit_no_model_answers_with_a_reason_the_harness_knows(tmp_path, make_config):
    from harness.replies import ENDINGS

    config = make_config(started_at="2026-01-01T00:00:00+00:00", provider="paid", base_url="http://x.invalid")
    gateway = InProcess(tmp_path / "run", config, ScriptedProvider(lambda body: answer()))
    refused = gateway.chat()
    assert refused.status_code == 403 and refused.json()["error"]["code"] in ENDINGS
    assert gateway.provider.seen == []


def test_the_guests_token_is_in_nothing_that_is_written(tmp_path, make_config):
    gateway = InProcess(tmp_path / "run", make_config(), ScriptedProvider(lambda body: answer(text=TOKEN)))
    gateway.chat(messages=[USER | {"content": TOKEN}])
    assert not any(
        TOKEN.encode() in path.read_bytes() for path in gateway.folder.rglob("*") if path.is_file()
    )
