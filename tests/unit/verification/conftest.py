"""TESTS: a real session of some seconds, collected as by `lab collect`, and copies of it to tamper with."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from native_lab import RUN_ID, Lab

from labkit import sums
from labkit.gateway import process
from labkit.verification.findings import Report
from labkit.verification.verify import examine

STEPS = 32


@dataclass
class Copy:
    """A copy of a collected run, and ways to change it. `seal` makes all sums fit, as a forger would."""

    folder: Path

    def sql(self, *statements: str, database: str = "run.db") -> None:
        connection = sqlite3.connect(self.folder / database)
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()

    def ask(self, sql: str, database: str = "run.db") -> list[tuple]:
        connection = sqlite3.connect(self.folder / database)
        rows = connection.execute(sql).fetchall()
        connection.close()
        return rows

    def lines(self, name: str) -> list[bytes]:
        return (self.folder / "gateway" / name).read_bytes().splitlines(keepends=True)

    def put(self, name: str, lines: list[bytes]) -> None:
        (self.folder / "gateway" / name).write_bytes(b"".join(lines))

    def records(self) -> list[dict]:
        return [json.loads(line) for line in self.lines("ledger.jsonl")]

    def seal(self) -> None:
        """The run.db hash in summary.json, and SHA256SUMS, as they would be for what is here now."""
        summary = json.loads((self.folder / "summary.json").read_text())
        summary["sha256"] = {"run.db": sums.file_sha256(self.folder / "run.db")}
        (self.folder / "summary.json").write_text(json.dumps(summary))
        names = [p.relative_to(self.folder).as_posix() for p in self.folder.rglob("*") if p.is_file()]
        sums.write(self.folder, {n: sums.file_sha256(self.folder / n) for n in names if n != sums.NAME})

    def examine(self) -> Report:
        return examine(self.folder)


class Bench:
    """A copy that is put back before each try."""

    def __init__(self, copy: Copy, names: list[str]) -> None:
        self.copy, self.names = copy, names
        self.kept = {name: (copy.folder / name).read_bytes() for name in [*names, "summary.json"]}

    def first(self, change: Callable[[], object]) -> tuple[str, str]:
        """(kind, record) of the first that `lab verify` finds after the change; two empty texts: nothing."""
        for name, data in self.kept.items():
            (self.copy.folder / name).write_bytes(data)
        change()
        self.copy.seal()
        report = self.copy.examine()
        return (report.first.kind, report.first.record) if report.first else ("", "")

    def sql(self, *statements: str) -> None:
        for name in self.names:
            self.copy.sql(*statements, database=name)


@pytest.fixture(scope="session")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a session that ended by itself, with as many steps on each machine. Nobody changes it."""
    lab = Lab(tmp_path_factory.mktemp("honest"), minutes=1.0)
    try:
        lab.run(step_seconds=60.0 / STEPS)
    finally:
        process.stop(lab.gateway)
    return lab.collect()


@contextlib.contextmanager
def copied(run: Path) -> Iterator[Copy]:
    """In memory where there is such a place: a forger's fsyncs prove nothing."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None, prefix="lab-verify-") as folder:
        yield Copy(Path(shutil.copytree(run, Path(folder) / RUN_ID)))


@pytest.fixture
def copy(honest: Path) -> Iterator[Copy]:
    with copied(honest) as copy:
        yield copy


@pytest.fixture
def bench(honest: Path) -> Iterator[Callable[..., Bench]]:
    """Makes a Bench; names: the files that are changed in each try."""
    with copied(honest) as copy:
        yield lambda *names: Bench(copy, list(names))
