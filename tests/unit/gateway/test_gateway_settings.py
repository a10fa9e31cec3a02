"""TESTS: gateway.json by hand: what can't be is refused at the start, by field, value and what is wanted."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.errors import USAGE, LabError
from labkit.gateway import fields
from labkit.gateway.config import GatewayConfig
from labkit.gateway.ledger import Ledger

ROOT = Path(__file__).parents[3]

# field, what stands there as JSON, a part of the sentence
WRONG = [
    ("port", "28421.5", "port is 28421.5; it must be a whole number from 1 to 65535"),
    ("port", "0", "port is 0;"),
    ("port", "true", "port is true;"),
    ("page_port", "99999", "page_port is 99999; it must be a whole number from 0 to 65535"),
    ("page_port", '"8422"', 'page_port is "8422";'),
    ("started_at", '"yesterday"', 'started_at is "yesterday"; it must be a time with its zone'),
    ("started_at", "5", "started_at is 5;"),
    ("started_at", '"2026-11-30T08:00:00"', "a time with its zone"),
    ("models", '"rehearsal"', 'models is "rehearsal"; it must be a list'),
    ("models", "[]", "models is [];"),
    ("models", "[5]", "models is [5];"),
    ("run_id", "5", "run_id is 5; it must be a run's name"),
    ("run_id", '"../../x"', 'run_id is "../../x";'),
    ("run_id", '"r\\n"', 'run_id is "r\\n";'),
    ("bind", '""', "bind is"),
    ("bind", '"127.0.0.1\\u0000"', "bind is"),
    ("provider", '"../key"', "provider is"),
    ("budget_usd", '"5"', 'budget_usd is "5"; it must be a number of dollars'),
    ("budget_usd", "NaN", "budget_usd is NaN;"),
    ("budget_usd", "-1", "budget_usd is -1;"),
    ("minutes", "Infinity", "minutes is Infinity;"),
    ("minutes", "0", "minutes is 0; it must be a number of minutes, above 0"),
    ("minutes", "1" + "0" * 400, "minutes is 1000"),
    ("max_completion_tokens", "0.5", "max_completion_tokens is 0.5;"),
    ("token_life_seconds", "null", "token_life_seconds is null;"),
    ("days_dir", "{}", "days_dir is {};"),
    ("pages_base", '"http://127.0.0.1:99999"', "pages_base is"),
    ("colour", '"red"', '"colour" is no setting of a gateway'),
]


@pytest.fixture
def changed(tmp_path, make_config):
    """Writes settings that are right but for one field."""

    def change(**fields_as_json: str) -> Path:
        make_config().save(tmp_path)
        path = tmp_path / "gateway.json"
        values = json.loads(path.read_text()) | {name: f"@{name}@" for name in fields_as_json}
        text = json.dumps(values)
        for name, value in fields_as_json.items():
            text = text.replace(f'"@{name}@"', value)
        path.write_text(text)
        return tmp_path

    return change


def by_hand(folder: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "labkit.gateway", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(("name", "value", "sentence"), WRONG)
def test_a_field_that_cannot_be_is_named_with_its_file_and_its_value(changed, name, value, sentence):
    folder = changed(**{name: value})
    with pytest.raises(LabError) as caught:
        GatewayConfig.load(folder)
    assert caught.value.message.startswith(f"{folder / 'gateway.json'}: ")
    assert sentence in caught.value.message
    assert caught.value.code == USAGE


@pytest.mark.parametrize("name", ["key_env", "management_key_env", "token_sha256"])
def test_a_key_in_the_wrong_field_is_not_shown(changed, name):
    with pytest.raises(LabError, match=f"{name} is another value; it must be") as caught:
        GatewayConfig.load(changed(**{name: '"sk-canary-1234"'}))
    assert "canary" not in str(caught.value)


def test_a_paid_provider_needs_an_address_and_the_rehearsal_does_not(changed):
    assert GatewayConfig.load(changed(base_url='""')).base_url == ""
    with pytest.raises(LabError, match='base_url is "ftp://x"; it must be an http'):
        GatewayConfig.load(changed(provider='"paid"', base_url='"ftp://x"'))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "gateway.json is no JSON: line 1, column 1"),
        (b"[" * 100_000, "gateway.json is no JSON"),
        (b"\xff\xfe", "gateway.json is no JSON"),
        (b"[1, 2]", "it is no JSON object"),
        (b"{}", "run_id is missing"),
    ],
)
def test_a_file_that_holds_no_settings_is_said_without_words_of_python(tmp_path, content, sentence):
    (tmp_path / "gateway.json").write_bytes(content)
    with pytest.raises(LabError) as caught:
        GatewayConfig.load(tmp_path)
    assert sentence in caught.value.message and caught.value.code == USAGE


def test_every_field_has_its_rule():
    assert {one.name for one in dataclasses.fields(GatewayConfig)} == set(fields.RULES)


def test_by_hand_a_wrong_field_is_a_sentence_and_exit_code_2(changed):
    ended = by_hand(changed(port="28421.5"))
    assert ended.returncode == USAGE
    assert "port is 28421.5" in ended.stderr and "Traceback" not in ended.stderr


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with a name")
def test_a_pipe_where_the_settings_belong_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "gateway.json")
    ended = by_hand(tmp_path)
    assert ended.returncode == USAGE
    assert "gateway.json is no regular file" in ended.stderr


def test_a_folder_whose_ledger_is_another_runs_is_refused_and_left_as_it_was(changed):
    folder = changed()
    Ledger(folder, "20260101-000000-aaaaaa").close()
    before = (folder / "ledger.jsonl").read_bytes()
    ended = by_hand(folder)
    assert ended.returncode == USAGE
    assert "holds the ledger of run 20260101-000000-aaaaaa" in ended.stderr
    assert (folder / "ledger.jsonl").read_bytes() == before
