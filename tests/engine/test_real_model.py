"""ENGINE: a short session with a small real model behind the real gateway; opt-in, `make test-realmodel`.

The model is far too small to work. That is the point: what it says is odd in ways that no script thinks of.
"""

import contextlib
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from harness_run import ROOT, run_session, run_settings

PYTHON = ROOT / "build/realmodel/bin/python"
TOKEN, MODEL = "run-token-of-this-test", "smollm2"
pytestmark = pytest.mark.skipif(
    os.environ.get("LAB_TEST_REALMODEL") != "1", reason="opt-in: make test-realmodel"
)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(url, process, seconds=120):
    ends = time.monotonic() + seconds
    while time.monotonic() < ends and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    pytest.fail("the model was not served; docs/realmodel.md says how to try it alone")


@pytest.fixture(scope="module")
def model_url():
    port = free_port()
    line = [str(PYTHON), str(Path(__file__).with_name("local_model.py")), str(port)]
    process = subprocess.Popen(line, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        wait_for(f"http://127.0.0.1:{port}/health", process)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
        process.kill()


@pytest.fixture
def gateway(tmp_path, model_url, monkeypatch):
    from labkit.gateway import process
    from labkit.gateway.config import GatewayConfig, token_hash

    monkeypatch.setenv("LAB_REALMODEL_KEY", "sk-local-model-wants-none")
    port, folder = free_port(), tmp_path / "gateway"
    folder.mkdir()
    config = GatewayConfig(
        run_id="20261129-201202-b0dd88", bind="127.0.0.1", port=port, provider="local", base_url=model_url,
        key_env="LAB_REALMODEL_KEY", models=(MODEL,), token_sha256=token_hash(TOKEN), budget_usd=1.0,
        price_input_per_mtok=0.1, price_output_per_mtok=0.2, max_completion_tokens=96, minutes=6,
    )  # fmt: skip
    process.start(folder, config)
    yield f"http://127.0.0.1:{port}"
    process.stop(folder)


@pytest.mark.timeout(900)
def test_a_session_with_a_real_model_is_sealed_and_every_call_is_accounted_for(tmp_path, gateway):
    own = {"token": TOKEN, "model": MODEL, "inspector_model": MODEL, "budget_usd": 1.0}
    own |= {"minutes": 6, "max_completion_tokens": 96, "request_timeout_seconds": 300}
    run = run_session(run_settings(tmp_path / "sandbox", gateway, **own), seconds=800)
    assert run.summary["status"] == "sealed" and run.summary["final_report_written"]
    good = run.rows("SELECT prompt_tokens, completion_tokens, cost_usd FROM api_requests WHERE status = 'ok'")
    assert good, run.rows("SELECT status, detail FROM api_requests")
    assert all(prompt > 0 and completion > 0 and cost > 0 for prompt, completion, cost in good)
    assert run.summary["cost_usd"] == pytest.approx(sum(cost for *_, cost in good), abs=1e-6)
    assert not [reason for reason in run.events("GUARD", "guard_reason") if "Traceback" in reason]
