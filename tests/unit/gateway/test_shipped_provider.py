"""TESTS: the default of the shipped inventory, `openrouter`, from run.yml to the provider, with a loopback
server in the place of base_url: model names, key, and what it cost."""

from __future__ import annotations

import pytest

pytest.importorskip("fcntl", reason="the host's part of a run is POSIX")

from labkit import config, plan  # noqa: E402

KEY = "sk-or-v1-canary-2b7e151628aed2a6"
WORKER = "meta/muse-spark-1.3-contributor"
INSPECTOR = "meta/another-model"
REPLY = {
    "id": "gen-1",
    "object": "chat.completion",
    "created": 1,
    "model": WORKER,
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
    "usage": {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "cost": 0.000123,
        "prompt_tokens_details": {"cached_tokens": 60},
    },
}


@pytest.fixture
def shipped(monkeypatch, tmp_path):
    """The gateway's settings for a default `lab run --inspector-model ...`, with a home of the test's own."""
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    monkeypatch.setattr(plan, "caller_home", lambda: tmp_path)
    lab = config.load(config.SHIPPED_INVENTORY)
    wanted = plan.make(lab, inspector_model=INSPECTOR)
    return plan.gateway_config(lab, wanted, "a token")


def test_the_shipped_default_names_openrouters_address_key_and_model(shipped):
    assert (shipped.provider, shipped.base_url) == ("openrouter", "https://openrouter.ai/api/v1")
    assert shipped.key_env == "OPENROUTER_API_KEY"
    assert shipped.models == (WORKER, INSPECTOR)
    assert shipped.key_file.endswith(".config/vm-lab/openrouter.key")


@pytest.fixture
def asked(shipped, run_gateway, upstream):
    """Starts a gateway of those settings before the loopback provider; asks both models; returns it."""
    upstream.answers(REPLY)

    def ask():
        ours = {
            name: getattr(shipped, name)
            for name in ("provider", "key_env", "key_file", "models", "budget_usd")
        }
        running = run_gateway(base_url=upstream.url, **ours)
        replies = [running.chat(model=model) for model in (WORKER, INSPECTOR)]
        assert [reply.status_code for reply in replies] == [200, 200]
        return running

    return ask


def check(running, upstream) -> None:
    assert [body["model"] for _, body in upstream.seen] == [WORKER, INSPECTOR]
    for headers, _ in upstream.seen:
        sent = {name.lower(): value for name, value in headers.items()}
        assert sent["authorization"] == f"Bearer {KEY}"
    lines = running.requests()
    assert [line["cost_usd"] for line in lines] == [0.000123, 0.000123]
    assert [line["cached_tokens"] for line in lines] == [60, 60]
    assert KEY.encode() not in running.everything_written()


def test_the_key_of_the_environment_arrives_and_is_written_nowhere(asked, upstream, monkeypatch):
    monkeypatch.setenv("OPENROUTER_API_KEY", KEY)
    check(asked(), upstream)


def test_the_key_of_a_private_file_in_the_callers_home_arrives_too(asked, upstream, tmp_path):
    folder = tmp_path / ".config" / "vm-lab"
    folder.mkdir(parents=True)
    (folder / "openrouter.key").write_text(KEY + "\n")
    (folder / "openrouter.key").chmod(0o600)
    check(asked(), upstream)


def test_a_model_that_the_run_did_not_name_is_refused_before_the_provider_sees_it(
    asked, upstream, monkeypatch
):
    monkeypatch.setenv("OPENROUTER_API_KEY", KEY)
    running = asked()
    upstream.seen.clear()
    reply = running.chat(model="openai/an-expensive-one")
    assert reply.status_code == 403 and reply.json()["error"]["code"] == "model_not_allowed"
    assert upstream.seen == []


def test_without_a_key_the_run_is_refused_with_both_ways_to_give_one(shipped):
    from labkit.gateway import keys

    with pytest.raises(keys.LabError, match="no key for provider openrouter") as caught:
        keys.provider_key(shipped)
    assert "OPENROUTER_API_KEY" in caught.value.hint and "chmod 600" in caught.value.hint
