"""TESTS: who asked to be told of the end of a run is told once, with the summary; a failure harms nothing."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from labkit.errors import LabError
from labkit.gateway import completion, process
from labkit.gateway.completion import Hook

SUMMARY = {"status": "sealed", "stop_reason": "time limit reached", "steps": 12}
# Appends what it reads to the file of its first argument.
KEEPER = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + '\\n')"


def keeper(file: Path) -> Hook:
    return Hook((sys.executable, "-c", KEEPER, str(file)))


def told(folder: Path) -> dict:
    """The gateway's record of it, once it is whole; fails after a while."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        record = folder / completion.RECORD
        if record.exists() and set(found := json.loads(record.read_text())) > {"time"}:
            return found
        time.sleep(0.05)
    raise AssertionError("the gateway told nobody")


def test_a_sealed_run_is_told_to_the_command_once_also_after_a_restart(tmp_path, event, run_gateway):
    running = run_gateway()
    running.stop()
    heard = tmp_path / "heard"
    process.start(running.folder, running.config, keeper(heard))
    said = SUMMARY | {"run_id": "another run's"}  # the guest's word
    running.push(event(1, event_type="RUN_SEALED", sanitized_output=json.dumps(said)))
    assert told(running.folder)["command"] == "ok"
    running.stop()
    process.start(running.folder, running.config, keeper(heard))
    running.stop()
    (line,) = heard.read_text().splitlines()
    assert json.loads(line) == {"run_id": running.config.run_id} | SUMMARY


def test_a_gateway_that_is_stopped_right_after_the_seal_still_tells(tmp_path, event, run_gateway):
    running = run_gateway()
    running.stop()
    heard = tmp_path / "heard"
    process.start(running.folder, running.config, keeper(heard))
    running.push(event(1, event_type="RUN_SEALED", sanitized_output=json.dumps(SUMMARY)))
    running.stop()
    assert len(heard.read_text().splitlines()) == 1


def test_a_gateway_that_gives_a_run_up_says_that_it_is_not_sealed(tmp_path, make_config):
    heard = tmp_path / "heard"
    config = replace(make_config(), minutes=1, started_at="2020-01-01T00:00:00+00:00")
    with contextlib.suppress(LabError):  # it may have given the run up before anybody saw it start
        process.start(tmp_path / "run", config, keeper(heard))
    told(tmp_path / "run")
    assert json.loads(heard.read_text())["status"] == "not sealed"


def test_the_webhook_gets_the_summary_as_json(tmp_path, make_config, upstream):
    upstream.answers({})
    completion.tell_once(tmp_path, make_config(), Hook(webhook=upstream.url + "/secret-path"), SUMMARY)
    ((headers, body),) = upstream.seen
    assert body["stop_reason"] == "time limit reached" and body["steps"] == 12
    assert told(tmp_path)["webhook"] == "ok: 127.0.0.1: 200"


@pytest.mark.parametrize(
    ("hook", "seconds", "part", "said"),
    [
        (Hook(("/no/such/program",)), 30, "command", "failed: /no/such/program: No such file"),
        (Hook((sys.executable, "-c", "print('not today'); exit(3)")), 30, "command", "code 3: not today"),
        (Hook((sys.executable, "-c", "import time; time.sleep(60)")), 1, "command", "not over after 1 s"),
        (Hook(webhook="http://127.0.0.1:9/a-secret"), 30, "webhook", "failed: 127.0.0.1: ConnectError"),
    ],
)
def test_a_failure_is_kept_in_words_and_harms_nothing(tmp_path, make_config, hook, seconds, part, said):
    completion.tell_once(tmp_path, make_config(), hook, SUMMARY, seconds)
    assert said in told(tmp_path)[part] and "a-secret" not in (tmp_path / completion.RECORD).read_text()


def test_a_webhook_that_answers_with_an_error_is_a_failure(tmp_path, make_config, upstream):
    upstream.answers({}, 500)
    completion.tell_once(tmp_path, make_config(), Hook(webhook=upstream.url), SUMMARY)
    assert told(tmp_path)["webhook"] == "failed: 127.0.0.1: 500"


def test_the_command_gets_neither_the_key_nor_the_webhooks_address(tmp_path, make_config, monkeypatch):
    monkeypatch.setenv("PAID_KEY", "sk-canary-7d1b0c5f2e")
    monkeypatch.setenv(completion.VARIABLE, "a-secret")
    show = "import os; print(sorted(set(os.environ) & {'PAID_KEY', 'LAB_ON_COMPLETE', 'PATH'}))"
    hook = Hook((sys.executable, "-c", show))
    completion.tell_once(tmp_path, make_config(key_env="PAID_KEY"), hook, SUMMARY)
    assert told(tmp_path)["command"] == "ok: ['PATH']"


def test_the_webhooks_address_is_not_in_the_folder_that_is_collected(tmp_path, run_gateway):
    running = run_gateway()
    running.stop()
    process.start(running.folder, running.config, Hook(webhook="http://127.0.0.1:9/a-secret"))
    running.stop()
    assert b"a-secret" not in running.everything_written()


def test_without_a_hook_nothing_is_written(tmp_path, make_config):
    completion.tell_once(tmp_path, make_config(), Hook(), SUMMARY)
    assert list(tmp_path.iterdir()) == []
