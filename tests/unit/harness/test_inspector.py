"""UNIT: only a clear ALLOW is one."""

import json

import pytest

from harness.inspector import read_verdict
from harness.money import Usage
from harness.replies import Reply


def reply(text, finish="stop"):
    return Reply(text, (), finish, Usage(), None)


@pytest.mark.parametrize(
    "text",
    ['{"verdict": "ALLOW", "reason": "known package"}', '```json\n{"verdict": "ALLOW", "reason": "ok"}\n```'],
)
def test_a_clear_allow_is_one(text):
    assert read_verdict(reply(text)).allowed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ALLOW",
        'Sure! {"verdict": "ALLOW", "reason": "x"}',
        '{"verdict": "ALLOW"}',
        '{"verdict": "ALLOW", "reason": ""}',
        '{"verdict": "ALLOW", "reason": 3}',
        '{"verdict": "allow", "reason": "x"}',
        '{"verdict": "MAYBE", "reason": "x"}',
        '{"verdict": ["ALLOW"], "reason": "x"}',
        '["ALLOW"]',
        '{"verdict": "ALLOW", "reason": "x"',
        "null",
        "[" * 100_000,
    ],
    ids=lambda text: text[:40],
)
def test_anything_unclear_is_a_block_without_verdict(text):
    verdict = read_verdict(reply(text))
    assert verdict.status == "BLOCK"
    assert verdict.reason.startswith("no verdict")


def test_a_reply_cut_by_the_token_limit_is_no_verdict():
    text = json.dumps({"verdict": "ALLOW", "reason": "x"})
    assert read_verdict(reply(text, "length")).reason.startswith("no verdict")


def test_a_block_keeps_its_reason():
    verdict = read_verdict(reply('{"verdict": "BLOCK", "reason": "imitates requests"}'))
    assert (verdict.status, verdict.reason) == ("BLOCK", "imitates requests")
