"""TESTS: sessions that are struck, and what is left of them: the session host, its gateway, the record."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

from harness_run import ROOT, run_settings
from scripted_gateway import ScriptedGateway

HERE = Path(__file__).parent
MEMORY = Path("/dev/shm")  # a kill leaves what was written, whatever the disk has of it
TABLES = ("execution_logs", "file_registry", "api_requests", "session_state", "prompts", "workspace_files")
STEPS = 40
KILLED = signal.SIGKILL
SOAK = os.environ.get("LAB_TEST_SOAK") == "1"


def build_strike(folder: Path) -> Path:
    """The shared object to preload. Raises CalledProcessError where there is no compiler."""
    library = folder / "strike.so"
    flags = ["-O1", "-shared", "-fPIC", "-D_LARGEFILE64_SOURCE"]
    subprocess.run(["cc", *flags, "-o", library, HERE / "strike.c", "-ldl"], check=True)
    return library


class SessionHost:
    """One session_host.py process. Not for two threads."""

    def __init__(self, strike: Path) -> None:
        paths = [ROOT, ROOT / "tests/support", HERE]
        environment = os.environ | {"LD_PRELOAD": str(strike), "PYTHONPATH": os.pathsep.join(map(str, paths))}
        line = [sys.executable, str(HERE / "session_host.py")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(line, env=environment, **pipes)
        self._writes: dict[str, int] = {}

    def writes(self, gateway: ScriptedGateway, below: str = "") -> int:
        """How many a whole session makes below this folder ('': its sandbox); the last are its seal."""
        if below not in self._writes:
            with Session(gateway) as session:
                counted = {"below": below or str(session.sandbox), "at": 0, "action": "count"}
                self._writes[below] = self.run(session, counted)["seen"]
        return self._writes[below]

    def run(self, session: Session, strike: dict | None = None, seconds: float = 60) -> dict:
        order = {"run": session.settings, "outside": str(session.outside)}
        order |= {"strike": strike, "seconds": seconds}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(timeout=10)
        self.process.stdout.close()


class Session:
    """A sandbox, and beside it what the session does not know of. The gateway keeps what it acknowledged."""

    def __init__(self, gateway: ScriptedGateway, steps: int = STEPS, **changes: object) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="lab-engine-", dir=MEMORY if MEMORY.is_dir() else None))
        self.sandbox, self.outside = self.home / "sandbox", self.home / "outside"
        self.outside.mkdir()
        self.gateway = gateway
        gateway.events.clear()
        minutes = (steps - 2) * 10 / 0.75 / 60  # the last two steps write the report and say so
        own = {"minutes": minutes, "network_programs": ["labfetch"], "nudge_every_minutes": 2}
        self.settings = run_settings(self.sandbox, gateway.url, **{**own, **changes})

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.home, ignore_errors=True)

    def rows(self, sql: str, database: str = "telemetry/run.db") -> list[tuple]:
        with contextlib.closing(sqlite3.connect(self.sandbox / database)) as db:
            return db.execute(sql).fetchall()

    def summary(self) -> dict:
        return json.loads((self.sandbox / "telemetry/summary.json").read_text())

    def side(self) -> list[str]:
        """The lines that the Worker's commands wrote: one for each time that a command was run."""
        path = self.outside / "side"
        return path.read_text().splitlines() if path.exists() else []

    def first_request(self) -> list[dict]:
        return json.loads((self.outside / "first.json").read_text())

    def talk(self) -> str:
        path = self.outside / "talk"
        return path.read_text(errors="replace") if path.exists() else ""


class Left:
    """What a killed session left: committed rows, its checkpoint, what the gateway acknowledged."""

    def __init__(self, session: Session) -> None:
        self.rows: dict[str, set[tuple]] = {table: set() for table in TABLES if table != "session_state"}
        self.state: dict[str, str] = {}
        with tempfile.TemporaryDirectory(dir=session.home) as place:
            for number, copy in enumerate(("mirror", "telemetry")):
                self._read(_copied(session.sandbox / copy, Path(place) / str(number)))
        self.acknowledged = dict(session.gateway.events)
        self.side = session.side()

    def _read(self, database: Path | None) -> None:
        if database is None:
            return
        with contextlib.closing(sqlite3.connect(database)) as db:
            known = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            for table in set(self.rows) & known:
                self.rows[table] |= set(db.execute(f"SELECT * FROM {table}"))
            if "session_state" in known:
                self.state |= dict(db.execute("SELECT key, value FROM session_state"))

    def events(self, word: str) -> list[tuple]:
        return sorted(row for row in self.rows["execution_logs"] if row[5] == word)

    def interrupted(self) -> int:
        return sum(str(row[8]).startswith("interrupted:") for row in self.events("TOOL_RESULT"))

    def has_open_call(self) -> bool:
        return len(self.events("TOOL_CALL")) > len(self.events("TOOL_RESULT"))


def _copied(folder: Path, place: Path) -> Path | None:
    """Database and WAL, as they lie there; SQLite recovers the copy and not the original."""
    if not (folder / "run.db").exists():
        return None
    place.mkdir()
    for name in ("run.db", "run.db-wal"):
        if (folder / name).exists():
            shutil.copy(folder / name, place / name)
    return place / "run.db"
