"""UNIT: the transport against a real loopback server that misbehaves."""

import dataclasses
import threading
import time

import httpx2
import pytest
from harness_run import run_settings
from loopback import until
from scripted_gateway import ScriptedGateway, call, fault, say

from harness.clock import Clock
from harness.errors import EndRun, Interrupted, ModelError, NoMoney
from harness.model import Model
from harness.money import Purse
from harness.settings import from_dict
from harness.telemetry.recorder import Recorder
from harness.world import REAL

MESSAGES = [{"role": "system", "content": "s"}, {"role": "user", "content": "Phase: EXPLORATION"}]


@pytest.fixture
def made(tmp_path):
    """make(gateway url, **settings) -> a Model whose record is at hand."""

    def make(url, world=REAL, **changes):
        wanted = from_dict(run_settings(tmp_path, url, **changes))
        clock = Clock(wanted.length_seconds, 0.1)
        recorder = Recorder(tmp_path / "run.db", tmp_path / "mirror.db", wanted.token, clock.elapsed)
        clock.start()
        return Model(wanted, recorder, clock, Purse.of(wanted), threading.Event(), world)

    return make


def attempts(model):
    return [row[0] for row in model.recorder.query("SELECT status FROM api_requests ORDER BY id")]


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        (fault("status", status=429, retry_after=0.05), "rate_limit"),
        (fault("status", status=500), "server"),
        (fault("status", status=503), "server"),
        (fault("html"), "html"),
        (fault("empty"), "empty"),
        (fault("nothing"), "malformed"),
        (fault("cut"), "connection"),
        (fault("in_body", code=502), "server"),
        (fault("in_body", code=429), "rate_limit"),
        (fault("in_body", code="odd"), "in_body_error"),
        ({"text": "x", "finish": None}, "malformed"),
        ({"text": "x", "finish": "error"}, "in_body_error"),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value)[:40],
)
def test_a_fault_is_named_recorded_and_tried_again(made, bad, status):
    with ScriptedGateway(worker=[bad, say("fine")]) as gateway:
        model = made(gateway.url)
        assert model.ask("worker", MESSAGES).text == "fine"
        assert attempts(model) == [status, "ok"]
        assert model.recorder.query("SELECT COUNT(*) FROM execution_logs WHERE event_type='API_ERROR'") == [
            (1,)
        ]


USAGE = {"prompt_tokens": 100, "completion_tokens": 5, "cost": 0.25}


def chat(finish="stop", **message):
    return {"choices": [{"index": 0, "finish_reason": finish, "message": {"content": "x", **message}}]}


def one_call(name="list_workspace", arguments="{}", function=None, **more):
    function = function or {"name": name, "arguments": arguments}
    return chat(tool_calls=[{"id": "a", "type": "function", "function": function, **more}])


@pytest.mark.parametrize(
    "body",
    [
        {"choices": {"a": 1}},
        {"choices": "abc"},
        {"choices": [None]},
        {"choices": [{"finish_reason": "stop", "message": None}]},
        {"choices": [{"finish_reason": "stop"}]},
        chat(content=[{"type": "text", "text": "x"}]),
        chat(content=5),
        chat(finish=["stop"]),
        chat(finish={"a": 1}),
        chat(tool_calls=3),
        one_call(name=["x"]),
        one_call(arguments={"path": "x"}),
        one_call(function="ls"),
    ],
    ids=lambda body: str(body)[:70],
)
def test_a_reply_of_another_shape_is_malformed_and_what_it_was_billed_is_in_the_books(made, body):
    answer = httpx2.MockTransport(lambda _: httpx2.Response(200, json=body | {"usage": USAGE}))
    model = made("http://provider.invalid", dataclasses.replace(REAL, transport=answer))
    with pytest.raises(ModelError, match="malformed"):
        model.ask("worker", MESSAGES, patience=0.2)
    assert attempts(model) == ["malformed"]
    assert model.purse.spent == 0.25


@pytest.mark.parametrize("code", [["502"], {"a": 1}, None])
def test_an_error_whose_code_is_no_text_is_an_error_all_the_same(made, code):
    answer = httpx2.MockTransport(lambda _: httpx2.Response(200, json={"error": {"code": code}}))
    model = made("http://provider.invalid", dataclasses.replace(REAL, transport=answer))
    with pytest.raises(ModelError, match="in_body_error"):
        model.ask("worker", MESSAGES, patience=0.2)
    assert attempts(model) == ["in_body_error"]


def test_a_calls_id_that_is_no_text_gives_way_to_one_of_our_own(made):
    body = one_call(id=[1])
    answer = httpx2.MockTransport(lambda _: httpx2.Response(200, json=body))
    model = made("http://provider.invalid", dataclasses.replace(REAL, transport=answer))
    (got,) = model.ask("worker", MESSAGES).tool_calls
    assert got.id.startswith("call_")


def test_a_dripping_server_is_given_up_at_the_wall_clock_deadline(made):
    with ScriptedGateway(worker=[fault("drip", seconds=60)]) as gateway:
        model = made(gateway.url, request_timeout_seconds=0.5)
        model.ready()
        began = time.monotonic()
        with pytest.raises(ModelError, match="silence"):
            model.ask("worker", MESSAGES, deadline=0.5)
        assert time.monotonic() - began < 30


def test_odd_replies_are_not_asked_for_without_end(made):
    with ScriptedGateway(worker=[fault("empty")]) as gateway:
        model = made(gateway.url)
        with pytest.raises(ModelError, match="empty"):
            model.ask("worker", MESSAGES)
        assert attempts(model) == ["empty"] * 4


def test_a_refused_request_is_not_repeated(made):
    with ScriptedGateway(worker=[fault("status", status=400, code="bad_request")]) as gateway:
        model = made(gateway.url)
        with pytest.raises(ModelError, match="refused"):
            model.ask("worker", MESSAGES)
        assert attempts(model) == ["refused"]


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [(402, "budget_exhausted", "budget exhausted"), (403, "run_ended", "wall limit reached")],
)
def test_the_gateway_can_end_the_run(made, status, code, reason):
    with ScriptedGateway(worker=[fault("status", status=status, code=code)]) as gateway:
        with pytest.raises(EndRun) as end:
            made(gateway.url).ask("worker", MESSAGES)
        assert end.value.stop_reason == reason


OURS = {"type": "lab_gateway", "message": "no reply"}
UNANSWERED = [
    (502, OURS | {"code": "provider_unreachable"}),
    (504, OURS | {"code": "provider_timeout"}),
    (502, OURS | {"code": "cut"}),
    (507, OURS | {"code": "gateway_disk"}),
]
ANSWERED = [
    (503, {"message": "busy", "code": "overloaded"}),
    (503, {"message": "provider_unreachable: come again", "code": "cut"}),  # the gateway's words in its mouth
    (503, {"message": "stream cut: come again", "type": "server_error"}),
    (200, {"message": "stream cut: come again", "code": 502}),
]


@pytest.mark.parametrize(
    ("status", "error", "charged"),
    [(*one, 0.0) for one in UNANSWERED] + [(*one, 3 * 5.0) for one in ANSWERED],
)
def test_no_wait_of_an_outage_is_charged_nor_an_attempt_to_which_nobody_answered(
    made, status, error, charged
):
    seconds = [0.0]

    def passes(pause, stop=None):
        seconds[0] += pause
        return False

    def busy(_):
        passes(5.0)
        return httpx2.Response(status, json={"error": error})

    model = made("http://x.invalid", dataclasses.replace(REAL, transport=httpx2.MockTransport(busy)))
    model.clock = Clock(600.0, 0.1, now=lambda: seconds[0], wait=passes)
    model.clock.start()
    with pytest.raises(ModelError):
        model.ask("worker", MESSAGES, patience=12.0)
    assert model.clock.elapsed() == charged
    assert model.clock.wall_elapsed() == 3 * 5.0 + 0.25 + 0.5
    said = model.recorder.query("SELECT latency_seconds FROM api_requests")
    assert set(said) == {(5.0,)}, "how long it took is in the record all the same"


@pytest.mark.parametrize("status", [200, 402, 403, 503])
@pytest.mark.parametrize("code", ["budget_exhausted", "run_ended"])
def test_a_provider_cannot_end_the_run_with_the_gateways_words(made, status, code):
    error = {"error": {"message": f"{code}: no more", "code": code}}
    answer = httpx2.MockTransport(lambda _: httpx2.Response(status, json=error))
    with pytest.raises(ModelError):
        made("http://x.invalid", dataclasses.replace(REAL, transport=answer)).ask(
            "worker", MESSAGES, patience=0.2
        )


def test_a_gateway_that_cannot_be_reached_costs_neither_time_nor_money(made):
    model = made("http://127.0.0.1:9")
    with pytest.raises(ModelError, match="connection"):
        model.ask("worker", MESSAGES, patience=0.3)
    assert model.purse.unknown == 0
    assert set(attempts(model)) == {"connection"}


def test_the_request_names_its_purpose_and_the_right_token_limit(made):
    with ScriptedGateway(digest=[say("d")]) as gateway:
        made(gateway.url, max_completion_tokens=77).ask("digest", MESSAGES)
        body = gateway.requests[0]
    assert (body["user"], body["max_completion_tokens"]) == ("digest", 77)
    assert "max_tokens" not in body


def test_the_billed_cost_counts_and_else_the_price_table(made):
    with ScriptedGateway(worker=[say("a")]) as gateway:
        gateway.cost = 0.25
        model = made(gateway.url)
        assert model.ask("worker", MESSAGES).cost == 0.25
        gateway.cost = None
        reply = model.ask("worker", MESSAGES)
    assert reply.cost == pytest.approx(reply.usage.prompt * 0.1e-6 + 40 * 0.2e-6)
    assert model.purse.spent == pytest.approx(0.25 + reply.cost)


def test_each_attempt_says_where_its_cost_is_from(made):
    billed, told = {"usage": USAGE}, {"usage": {"prompt_tokens": 100, "completion_tokens": 5}}
    answers = iter(
        [
            httpx2.Response(429, json={"error": {"message": "slow down"}}),
            httpx2.Response(504, json={"error": {"message": "no answer in time"}}),
            httpx2.Response(200, json={"choices": []} | billed),
            httpx2.Response(200, json=chat() | told),
            httpx2.Response(200, json=chat() | billed),
            httpx2.Response(200, json=chat()),
        ]
    )
    transport = httpx2.MockTransport(lambda _: next(answers))
    model = made("http://provider.invalid", dataclasses.replace(REAL, transport=transport))
    for _ in range(3):
        model.ask("worker", MESSAGES)
    said = model.recorder.query("SELECT status, cost_source, cost_usd IS NULL FROM api_requests ORDER BY id")
    assert said == [
        ("rate_limit", "free", 0),
        ("server", None, 1),
        ("empty", "billed", 0),
        ("ok", "price table", 0),
        ("ok", "billed", 0),
        ("ok", None, 1),
    ]


def test_a_call_whose_worst_case_is_not_left_is_not_made(made):
    with ScriptedGateway(worker=[say("a")]) as gateway:
        model = made(gateway.url, budget_usd=0.001, max_completion_tokens=100_000)
        with pytest.raises(NoMoney):
            model.ask("worker", MESSAGES)
        assert gateway.requests == []


def test_a_stop_ends_a_call_that_hangs(made):
    with ScriptedGateway(worker=[fault("slow", seconds=20)]) as gateway:
        model = made(gateway.url)
        threading.Thread(target=lambda: (until(lambda: gateway.requests), model.stop.set())).start()
        with pytest.raises(Interrupted):
            model.ask("worker", MESSAGES)
        assert attempts(model) == ["interrupted"]  # the provider may have answered: the call leaves its row
        assert model.purse.spent == 0 and model.purse.unknown > 0


def test_tool_calls_without_an_id_or_with_a_double_one_get_one_of_their_own(made):
    reply = call("read_file", path="a")
    reply["calls"] *= 3
    reply["ids"] = {0: "same", 1: "same", 2: ""}
    with ScriptedGateway(worker=[reply]) as gateway:
        got = made(gateway.url).ask("worker", MESSAGES)
    assert len({made_call.id for made_call in got.tool_calls}) == 3
    assert all(made_call.id for made_call in got.tool_calls)
