"""TESTS: where the provider key comes from, and that no log line can carry it."""

from __future__ import annotations

import json
import logging
import os
import sys

import pytest

from labkit.errors import LabError
from labkit.gateway import keys

CANARY = "sk-canary-8f1d77c0b2e94a55"


@pytest.fixture
def paid(make_config, tmp_path):
    return make_config(
        provider="paid",
        base_url="https://x.invalid",
        key_env="LAB_TEST_KEY",
        key_file=str(tmp_path / "paid.key"),
    )


def private(path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)


def test_a_private_file_gives_the_key_when_the_environment_does_not(paid, tmp_path, monkeypatch):
    monkeypatch.delenv("LAB_TEST_KEY", raising=False)
    private(tmp_path / "paid.key", CANARY + "\n")
    assert keys.provider_key(paid) == CANARY


def test_the_environment_goes_before_the_file(paid, tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_TEST_KEY", CANARY)
    private(tmp_path / "paid.key", "another-key-1234")
    assert keys.provider_key(paid) == CANARY


def test_without_a_path_the_file_is_in_the_configuration_folder_of_the_user(make_config):
    config = make_config(provider="openrouter", base_url="https://x.invalid")
    assert keys.key_path(config).parts[-3:] == (".config", "vm-lab", "openrouter.key")


@pytest.mark.skipif(os.name != "posix", reason="file modes")
def test_an_empty_key_file_is_refused(paid, tmp_path, monkeypatch):
    monkeypatch.delenv("LAB_TEST_KEY", raising=False)
    private(tmp_path / "paid.key", "\n")
    with pytest.raises(keys.LabError, match="is empty"):
        keys.provider_key(paid)


def test_a_logged_message_and_its_traceback_lose_the_key():
    try:
        raise ValueError(f"Illegal header value b'Bearer {CANARY}'")
    except ValueError:
        record = logging.LogRecord(
            "x", logging.ERROR, __file__, 1, "sent %s", (CANARY,), exc_info=sys.exc_info()
        )
    text = keys.RedactingFormatter(CANARY).format(record)
    assert CANARY not in text
    assert "sent [key]" in text and "Bearer [key]" in text and "Traceback" in text


@pytest.mark.parametrize(
    "written",
    [
        "sk-a/b+c&d-0123",
        r"sk-a\/b+c&d-0123",
        r"sk-a/b\u002bc\u0026d-0123",
        r"sk-a\u002Fb+c\u0026d-0123",
        "".join(f"\\u{ord(one):04x}" for one in "sk-a/b+c&d-0123"),
    ],
)
def test_a_key_is_hidden_however_a_providers_json_writes_it(written):
    said = f'{{"error": "bad key {written}", "path": "C:\\\\x"}}'.encode()
    assert json.loads(said)["error"] == "bad key sk-a/b+c&d-0123"
    assert json.loads(keys.redact(said, "sk-a/b+c&d-0123")) == {"error": "bad key [key]", "path": r"C:\x"}


def test_a_folder_where_the_key_file_belongs_is_named_as_what_it_is(paid, tmp_path, monkeypatch):
    monkeypatch.delenv("LAB_TEST_KEY", raising=False)
    (tmp_path / "paid.key").mkdir()
    with pytest.raises(LabError, match=r"key file .*paid\.key is no regular file"):
        keys.provider_key(paid)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with a name")
def test_a_pipe_where_the_key_file_belongs_is_not_waited_for(paid, tmp_path, monkeypatch):
    monkeypatch.delenv("LAB_TEST_KEY", raising=False)
    os.mkfifo(tmp_path / "paid.key", 0o600)
    with pytest.raises(LabError, match=r"key file .*paid\.key is no regular file"):
        keys.provider_key(paid)
