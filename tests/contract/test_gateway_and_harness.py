"""TESTS: the real harness against a real gateway with the rehearsal: both sides of the contract."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from loopback import gateway_config

from harness.settings import Settings
from labkit.gateway import process
from labkit.gateway.config import GatewayConfig
from labkit.gateway.events import EventTail, run_summary
from labkit.gateway.rows import COLUMNS

ROOT = Path(__file__).parents[2]
TOKEN = "contract-test-run-token-5d1c"
NONCE = "77c1" * 8
MINUTES = 0.15
FOLDERS = (
    "workspace/notes",
    "workspace/scripts",
    "workspace/tools",
    "tmp",
    "trash",
    "telemetry",
    "mirror",
    "backups",
)


def test_the_ledger_expects_exactly_the_columns_of_the_schema():
    db = sqlite3.connect(":memory:")
    db.executescript((ROOT / "harness/telemetry/schema.sql").read_text())
    assert tuple(row[1] for row in db.execute("PRAGMA table_info(execution_logs)")) == COLUMNS


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """(sandbox, gateway folder) of a session of a few seconds that has ended."""
    base = tmp_path_factory.mktemp("session")
    for folder in FOLDERS:
        (base / "sandbox" / folder).mkdir(parents=True)
    config = gateway_config(TOKEN, minutes=MINUTES, rehearsal_latency_seconds=0.02, nonce=NONCE)
    process.start(base / "gateway", config)
    try:
        (base / "run.json").write_text(json.dumps(harness_settings(config, base / "sandbox")))
        command = [sys.executable, "-m", "harness", str(base / "run.json")]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
        assert ended.returncode == 0, ended.stderr[-2000:]
    finally:
        process.stop(base / "gateway")
    return base / "sandbox", base / "gateway"


def harness_settings(config: GatewayConfig, sandbox: Path) -> dict:
    inventory = yaml.safe_load((ROOT / "inventory/group_vars/all/run.yml").read_text())
    known = Settings.__dataclass_fields__
    tuned = {name: inventory[f"run_{name}"] for name in known if f"run_{name}" in inventory}
    return tuned | {
        "run_id": config.run_id,
        "minutes": config.minutes,
        "budget_usd": config.budget_usd,
        "gateway_url": config.pages_base,
        "token": TOKEN,
        "nonce": NONCE,
        "model": "rehearsal",
        "inspector_model": "rehearsal",
        "task": None,
        "prompt": None,
        "sandbox": str(sandbox),
        "tool_user": None,
        "backup_command": ["true"],
    }


def test_the_session_is_sealed_with_a_report_written_by_the_worker(session):
    sandbox, gateway = session
    summary = run_summary(EventTail(gateway).poll())
    assert summary["status"] == "sealed"
    assert summary["final_report_written"] and summary["final_report_by"] == "worker"
    assert "# Final report" in (sandbox / "workspace/notes/final_report_v1.md").read_text()


def test_the_gateway_holds_every_row_of_the_run_as_the_guest_has_it(session):
    sandbox, gateway = session
    db = sqlite3.connect(f"file:{sandbox / 'telemetry/run.db'}?mode=ro", uri=True)
    db.row_factory = sqlite3.Row
    rows = [dict(row) for row in db.execute("SELECT * FROM execution_logs ORDER BY id")]
    assert EventTail(gateway).poll() == rows


def test_the_first_record_of_either_side_names_this_start_and_the_guests_boot(session):
    _, gateway = session
    opened = json.loads((gateway / "ledger.jsonl").read_text().splitlines()[0])
    assert (opened["kind"], opened["body"]["nonce"]) == ("opened", NONCE)
    first = EventTail(gateway).poll()[0]
    told = json.loads(first["sanitized_output"])
    assert (first["id"], first["event_type"], told["nonce"]) == (1, "RUN_STARTED", NONCE)
    boot = Path("/proc/sys/kernel/random/boot_id")
    assert told["boot_id"] == (boot.read_text().strip() if boot.exists() else "")


def test_both_sides_agree_on_calls_tokens_and_money(session):
    sandbox, gateway = session
    seen = [json.loads(line) for line in (gateway / "requests.jsonl").read_text().splitlines()]
    db = sqlite3.connect(f"file:{sandbox / 'telemetry/run.db'}?mode=ro", uri=True)
    sql = "SELECT COUNT(*), SUM(prompt_tokens), SUM(cached_tokens), SUM(cost_usd) FROM api_requests"
    count, prompt, cached, cost = db.execute(sql).fetchone()
    assert {line["status"] for line in seen} == {200}, "the rehearsal is strict: each list was sound"
    assert (len(seen), sum(line["prompt_tokens"] for line in seen)) == (count, prompt)
    assert sum(line["cached_tokens"] for line in seen) == cached > prompt / 2
    assert sum(line["cost_usd"] for line in seen) == pytest.approx(cost)


def test_the_run_token_is_in_no_file_of_either_side(session):
    files = [path for folder in session for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert not [path for path in files if re.search(TOKEN.encode(), path.read_bytes())]
