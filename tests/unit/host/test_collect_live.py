"""TESTS: a guest that answers is asked for its record; how that came home is this host's to say."""

from __future__ import annotations

import contextlib
import io
import json
import sqlite3

import pytest
import synthetic_run
from tars import archive, member

from labkit import collect, snapshot
from labkit.verification import evidence

SAYS = {
    "ready": True,
    "running": False,
    "sealed": False,
    "problems": [],
    "collected": "events",
    "reason": "no disk is left",
    "record": "the gateway's events (3 rows): no database could be read",
}


@pytest.fixture
def lying(tmp_path, monkeypatch):
    """The folder of a run whose guest says that it is off and its record was made from events."""
    path = tmp_path / "run.db"
    synthetic_run.database(path, steps=3)
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("INSERT INTO session_state (key, value) VALUES ('rebuilt_from', 'events')")
        database.commit()

    class Shell(contextlib.nullcontext):
        def __init__(self, *_):
            super().__init__(self)

        def stream(self, _):
            return io.BytesIO(archive(member("run.db", path.read_bytes())))

    monkeypatch.setattr(collect, "Shell", Shell)
    place, gateway = snapshot.Place("unit", tmp_path / "lab", "192.0.2.1"), tmp_path / "gateway"
    place.dir.mkdir()
    gateway.mkdir()
    return collect.bring(place, gateway, tmp_path / "runs" / synthetic_run.RUN_ID, SAYS)


def test_a_guest_that_answered_cannot_say_that_it_did_not(lying):
    manifest = json.loads((lying / "manifest.json").read_text())
    assert (manifest["collected"], manifest["reason"], manifest["guest"]["collected"]) == (
        "live",
        None,
        "live",
    )
    assert "record" not in manifest["guest"] and manifest["guest"]["problems"] == []


def test_a_record_that_says_it_was_made_from_events_is_not_believed(lying):
    found = evidence.read(lying)
    assert found.says_rebuilt and not found.rebuilt and not found.from_disks
