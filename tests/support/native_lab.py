"""TESTS: a real session of some seconds, harness and gateway, collected as by `lab collect`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import collected_natively
import httpx2
import yaml
from loopback import RUN_ID, gateway_config

from harness.machine import boot_id
from harness.settings import Settings
from labkit.gateway import process
from labkit.gateway.events import EventTail

ROOT = Path(__file__).parents[2]
STEPPED = Path(__file__).with_name("stepped_harness.py")
TOKEN = "verification-test-run-token-77aa"
NONCE = "5f3a" * 8
FOLDERS = ("workspace/notes", "workspace/scripts", "workspace/tools", "tmp", "trash", "telemetry", "mirror")


@dataclass
class Lab:
    """A sandbox, a gateway's folder, and what starts harness and gateway on them."""

    base: Path
    minutes: float = 0.12

    def __post_init__(self) -> None:
        for folder in FOLDERS:
            (self.sandbox / folder).mkdir(parents=True)
        self.config = gateway_config(
            TOKEN,
            minutes=self.minutes,
            rehearsal_latency_seconds=0.02,
            nonce=NONCE,
            guest_address="127.0.0.1",
            boot_id=boot_id(),  # the harness runs on this machine
        )
        (self.base / "run.json").write_text(json.dumps(self._settings()))

    @property
    def sandbox(self) -> Path:
        return self.base / "sandbox"

    @property
    def gateway(self) -> Path:
        return self.base / "gateway" / RUN_ID

    def _settings(self) -> dict:
        inventory = yaml.safe_load((ROOT / "inventory/group_vars/all/run.yml").read_text())
        known = Settings.__dataclass_fields__
        tuned = {name: inventory[f"run_{name}"] for name in known if f"run_{name}" in inventory}
        own = {"run_id": RUN_ID, "nonce": NONCE, "minutes": self.minutes, "budget_usd": 1.0, "token": TOKEN}
        own |= {"gateway_url": self.config.pages_base, "model": "rehearsal", "inspector_model": "rehearsal"}
        own |= {"task": None, "prompt": None, "sandbox": str(self.sandbox), "tool_user": None}
        return tuned | own | {"backup_command": ["true"]}

    def start_gateway(self) -> None:
        process.start(self.gateway, self.config)

    def start_harness(self, step_seconds: float | None = None) -> subprocess.Popen:
        """step_seconds: on a clock that each call of the Worker moves on so far, and nothing else."""
        stepped = [str(STEPPED), str(step_seconds)]
        what = ["-m", "harness"] if step_seconds is None else stepped
        command = [sys.executable, *what, str(self.base / "run.json")]
        log = open(self.base / "harness.log", "ab")  # noqa: SIM115 - the process holds it
        about = {"cwd": ROOT, "env": os.environ | {"PYTHONPATH": str(ROOT)}}
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, **about)

    def run(self, step_seconds: float | None = None) -> None:
        """A whole session, from start to sealed."""
        self.start_gateway()
        ended = self.start_harness(step_seconds).wait(100)
        assert ended == 0, (self.base / "harness.log").read_text()[-2000:]

    def kill(self, harness: subprocess.Popen) -> None:
        os.killpg(harness.pid, signal.SIGKILL)
        harness.wait()

    def wait_for_events(self, number: int, word: str = "") -> None:
        deadline, tail, seen = time.monotonic() + 60, EventTail(self.gateway), []
        while time.monotonic() < deadline:
            seen += [row for row in tail.poll() if word in ("", row["event_type"])]
            if len(seen) >= number:
                return
            time.sleep(0.02)
        raise AssertionError(f"only {len(seen)} events came")

    def push(self, *rows: dict, **payload: object) -> httpx2.Response:
        """As whoever holds the token can."""
        headers = {"authorization": f"Bearer {TOKEN}"}
        body = {"run_id": RUN_ID, "events": list(rows)} | payload
        with httpx2.Client(headers=headers, trust_env=False, timeout=20) as client:
            return client.post(f"{self.config.pages_base}/v1/events", json=body)

    def collect(self, **manifest: object) -> Path:
        """The folder runs/<run_id>, made by the host's own receiving end."""
        process.stop(self.gateway)
        return collected_natively.collect(self.base, self.sandbox, self.gateway, **manifest)
