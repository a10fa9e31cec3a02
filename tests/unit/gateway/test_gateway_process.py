"""TESTS: the gateway as a process: it outlives its starter, is recognised, and says why it does not start."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from loopback import free_port

from labkit.errors import LabError
from labkit.gateway import pidfile, process
from labkit.gateway.config import token_hash

ROOT = Path(__file__).parents[3]


def in_another_process(code: str, *arguments: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def wait_until_dead(folder: Path) -> bool:
    deadline = time.monotonic() + 20
    while process.alive(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not process.alive(folder)


def test_the_gateway_lives_on_when_the_process_that_started_it_has_ended(tmp_path, make_config):
    config = make_config()
    config.save(tmp_path)
    starter = in_another_process(
        "import sys; from pathlib import Path; from labkit.gateway import process, config\n"
        "d = Path(sys.argv[1]); print(process.start(d, config.GatewayConfig.load(d)))",
        str(tmp_path),
    )
    try:
        assert starter.returncode == 0, starter.stderr
        assert process.alive(tmp_path)
        assert httpx2.get(f"http://127.0.0.1:{config.port}/healthz", trust_env=False).status_code == 200
        assert os.getsid(int(starter.stdout)) == int(starter.stdout), "it must not share a terminal's session"
    finally:
        assert process.stop(tmp_path)
    assert not process.alive(tmp_path)


def test_a_second_gateway_for_the_same_run_is_refused(run_gateway):
    running = run_gateway()
    with pytest.raises(LabError, match="already runs"):
        running.start()


def test_a_second_gateway_in_the_foreground_is_refused_on_another_port_as_well(run_gateway, event):
    """Two that write one ledger would break its chain, and take from each other what they acknowledged."""
    running = run_gateway()
    replace(running.config, port=free_port()).save(running.folder)
    code = "import sys; from labkit.gateway.__main__ import main; sys.exit(main(sys.argv[1:]))"
    ended = in_another_process(code, str(running.folder))
    assert ended.returncode and "already runs" in ended.stderr
    assert running.push(event(1)).json() == {"watermark": 1}
    assert pidfile.read(running.folder), "the first one's"


def test_a_gateway_that_is_stopped_is_alive_answers_nobody_and_can_be_ended(run_gateway, monkeypatch):
    monkeypatch.setattr(process, "STOP_SECONDS", 3.0)
    running = run_gateway()
    assert process.answers(running.config)
    os.kill(pidfile.read(running.folder), signal.SIGSTOP)
    assert process.alive(running.folder) and not process.answers(running.config, seconds=0.5)
    assert process.stop(running.folder) and not process.alive(running.folder)


def test_a_pid_that_belongs_to_another_program_now_is_not_taken_for_the_gateway(tmp_path):
    (tmp_path / "gateway.pid").write_text(f"{os.getpid()}\nlong ago\n")
    assert not process.alive(tmp_path)
    assert process.stop(tmp_path) is False, "stop must leave the foreign process alone"


@pytest.mark.parametrize("content", ["", "12\n", "no pid\nat all\n", "99999999\nx\n"])
def test_a_damaged_or_stale_pid_file_means_not_alive(tmp_path, content):
    (tmp_path / "gateway.pid").write_text(content)
    assert not process.alive(tmp_path)


def test_a_child_that_ended_but_was_not_waited_for_is_not_alive():
    child = subprocess.Popen([sys.executable, "-c", ""])
    deadline = time.monotonic() + 20
    while pidfile.start_time(child.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert pidfile.start_time(child.pid) is None
    child.wait()


def test_after_a_kill_the_gateway_starts_again_on_the_same_port(run_gateway, event):
    running = run_gateway()
    running.push(event(1), event(2))
    os.kill(pidfile.read(running.folder), signal.SIGKILL)
    assert wait_until_dead(running.folder)
    running.start()
    assert running.push(event(3)).json() == {"watermark": 3}


def test_a_resumed_run_has_its_events_and_a_new_token_and_the_old_one_opens_nothing(run_gateway, event):
    running = run_gateway()
    running.push(event(1), event(2))
    running.stop()
    process.start(running.folder, replace(running.config, token_sha256=token_hash("another")))
    assert running.push(event(3)).status_code == 401
    running.http.headers["authorization"] = "Bearer another"
    assert running.push(event(3)).json() == {"watermark": 3}


def test_a_port_in_use_is_one_sentence_that_names_it(tmp_path, make_config):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(LabError, match=f"port {port} on 127.0.0.1 is already in use"):
            process.start(tmp_path, make_config(port=port))


def test_an_address_that_the_host_does_not_have_points_to_the_network(tmp_path, make_config):
    with pytest.raises(LabError, match="no address 192.0.2.1") as caught:
        process.start(tmp_path, make_config(bind="192.0.2.1"))
    assert "lab doctor" in caught.value.hint


def test_a_missing_key_says_where_it_was_looked_for(tmp_path, make_config, monkeypatch):
    monkeypatch.delenv("LAB_TEST_KEY", raising=False)
    config = make_config(
        provider="paid",
        base_url="https://x.invalid",
        key_env="LAB_TEST_KEY",
        key_file=str(tmp_path / "none.key"),
    )
    with pytest.raises(LabError, match="LAB_TEST_KEY is not set") as caught:
        process.start(tmp_path / "run", config)
    assert "none.key" in str(caught.value) and "chmod 600" in caught.value.hint


@pytest.mark.skipif(os.name != "posix", reason="file modes")
def test_a_key_file_that_others_can_read_is_refused_without_showing_the_key(tmp_path, make_config):
    key_file = tmp_path / "paid.key"
    key_file.write_text("sk-canary-1234567890\n")
    key_file.chmod(0o644)
    config = make_config(provider="paid", base_url="https://x.invalid", key_file=str(key_file))
    with pytest.raises(LabError, match="can be read by others") as caught:
        process.start(tmp_path / "run", config)
    assert "canary" not in str(caught.value)


def test_a_key_with_a_line_break_is_refused_without_showing_it(tmp_path, make_config, monkeypatch):
    monkeypatch.setenv("LAB_TEST_KEY", "sk-canary\n1234567890")
    config = make_config(provider="paid", base_url="https://x.invalid", key_env="LAB_TEST_KEY")
    with pytest.raises(LabError, match="control characters") as caught:
        process.start(tmp_path / "run", config)
    assert "canary" not in str(caught.value)


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path, make_config):
    (tmp_path / "file").write_text("")
    with pytest.raises(LabError, match="cannot be made"):
        process.start(tmp_path / "file" / "run", make_config())


def test_settings_that_make_no_sense_are_refused(make_config):
    for change in ({"port": 0}, {"models": ()}, {"budget_usd": float("nan")}, {"minutes": 0}):
        with pytest.raises(LabError):
            make_config(**change)


def test_settings_survive_being_saved_and_read(tmp_path, make_config):
    config = make_config()
    config.save(tmp_path)
    assert type(config).load(tmp_path) == config


def test_the_gateway_ends_by_itself_some_time_after_the_run_is_sealed(tmp_path, make_config, event):
    config = make_config()
    config.save(tmp_path)
    from labkit.gateway.ledger import Ledger

    Ledger(tmp_path, config.run_id).accept(
        {"run_id": config.run_id, "events": [event(1, event_type="RUN_SEALED", sanitized_output="{}")]}
    )
    code = "import sys; from pathlib import Path; from labkit.gateway.server import serve\n"
    ended = in_another_process(code + "serve(Path(sys.argv[1]), linger_seconds=0.2)", str(tmp_path))
    assert ended.returncode == 0
    assert "sealed" in ended.stderr
    assert not (tmp_path / "gateway.pid").exists()


def test_the_gateway_ends_by_itself_past_its_wall_limit(tmp_path, make_config):
    config = replace(make_config(), minutes=1, started_at="2020-01-01T00:00:00+00:00")
    config.save(tmp_path)
    code = "import sys; from labkit.gateway.__main__ import main; sys.exit(main(sys.argv[1:]))"
    ended = in_another_process(code, str(tmp_path))
    assert ended.returncode == 0
    assert "wall limit over" in ended.stderr


def test_in_the_foreground_a_failure_is_a_sentence_and_an_exit_code(tmp_path):
    code = "import sys; from labkit.gateway.__main__ import main; sys.exit(main(sys.argv[1:]))"
    ended = in_another_process(code, str(tmp_path / "nothing"))
    assert ended.returncode == 2
    assert ended.stderr.startswith("lab: no gateway settings at") and "Traceback" not in ended.stderr
