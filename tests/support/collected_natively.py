"""TESTS: makes runs/<run_id> of a session that ran on this machine, through the host's own receiving end."""

from __future__ import annotations

import io
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

from labkit import intake
from labkit.gateway import chain


def collect(base: Path, sandbox: Path, gateway: Path, **manifest: object) -> Path:
    """The folder BASE/runs/<name of the gateway's folder>. manifest: more facts of the host's."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, path in _databases(base, sandbox).items():
            tar.add(path, name)
        tar.add(sandbox / "workspace", "workspace")
    archive.seek(0)
    facts = {"collected": "live", "ledger": vars(chain.end_of(gateway))} | manifest
    return intake.receive(archive, base / "runs" / gateway.name, {"gateway": gateway}, facts)


def _databases(base: Path, sandbox: Path) -> dict[str, Path]:
    telemetry = sandbox / "telemetry"
    found = {"run.db": telemetry / "sealed/run.db", "summary.json": telemetry / "summary.json"}
    if not found["run.db"].is_file():
        found = {"run.db": _copy(telemetry / "run.db", base / "run-copy.db")}
    return found | {"mirror.db": _copy(sandbox / "mirror/run.db", base / "mirror-copy.db")}


def _copy(source: Path, target: Path) -> Path:
    with closing(sqlite3.connect(source)) as live, closing(sqlite3.connect(target)) as copy:
        live.backup(copy)
    return target
