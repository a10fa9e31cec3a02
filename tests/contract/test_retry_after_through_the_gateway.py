"""TESTS: a provider's Retry-After reaches the harness through a real gateway, also where it is a date."""

import email.utils
import time

import openai
import pytest
from gateway_process import make_config, run_gateway, serving  # noqa: F401 - fixtures

from harness import replies


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_how_long_a_provider_asks_to_be_left_alone_arrives(run_gateway, monkeypatch, form):  # noqa: F811
    monkeypatch.setenv("LAB_TEST_KEY", "sk-test-key-of-this-test-0123")
    date = email.utils.formatdate(time.time() + 3000, usegmt=True)
    with serving() as upstream:
        told = {"retry-after": date if form == "date" else "3000"}
        upstream.answers({"error": {"message": "slow down"}}, status=429, **told)
        gateway = run_gateway(provider="paid", base_url=upstream.url, key_env="LAB_TEST_KEY")
        with pytest.raises(openai.RateLimitError) as error:
            gateway.openai.chat.completions.create(model="test/model", messages=[], user="worker")
    monkeypatch.setattr(replies.time, "time", lambda: 0.0)  # a guest's clock may be a day off, or years
    failure = replies.classify(error.value)
    assert failure.kind == "rate_limit"
    assert 2000 < failure.retry_after <= 3001, "a date has whole seconds, and some have passed"
