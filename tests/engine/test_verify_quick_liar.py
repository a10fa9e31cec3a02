"""TESTS: rows of a guest that lies while its harness runs, pushed before the harness can push its own."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

from native_lab import Lab

from labkit.gateway.rows import COLUMNS
from labkit.verification.verify import examine


def test_rows_pushed_before_the_harness_can_push_its_own_are_forged(tmp_path_factory):
    """Root in the guest has the token and is quicker than the harness once."""
    lab = Lab(tmp_path_factory.mktemp("quick"))
    lab.start_gateway()
    harness = lab.start_harness()
    lab.wait_for_events(6)
    ahead = [
        dict.fromkeys(COLUMNS) | {"id": n, "event_type": "BACKUP", "sanitized_output": "x"}
        for n in range(30, 35)
    ]
    assert lab.push(*ahead).status_code == 200
    old = dict.fromkeys(COLUMNS) | {
        "id": 1,
        "event_type": "RUN_STARTED",
        "sanitized_output": '{"nonce": "old"}',
    }
    assert lab.push(old).status_code == 409
    assert lab.push(run_id="20250101-000000-aaaaaa").status_code == 409
    assert harness.wait(100) == 0
    lab.push(*own_rows(lab, 30, 34))  # again, if the harness did so: its watermark may have passed them
    report = lab_examined(lab)
    for number in range(30, 35):  # who of the two lied, no file can tell: both tell of event 30 to 34
        kinds = {finding.kind for finding in report.findings if finding.record == f"event {number}"}
        assert kinds and kinds <= {"altered", "forged", "missing"}
    assert any(finding.kind == "forged" for finding in report.findings), "the second push is told as well"
    assert len([finding for finding in report.findings if finding.kind == "replayed"]) == 2


def own_rows(lab, first: int, last: int) -> list[dict]:
    with closing(sqlite3.connect(lab.sandbox / "telemetry/run.db")) as db:
        sql = f"SELECT {', '.join(COLUMNS)} FROM execution_logs WHERE id BETWEEN ? AND ? ORDER BY id"
        return [dict(zip(COLUMNS, values, strict=True)) for values in db.execute(sql, (first, last))]


def lab_examined(lab):
    folder = lab.collect()
    report = examine(folder)
    shutil.rmtree(lab.sandbox)
    return report
