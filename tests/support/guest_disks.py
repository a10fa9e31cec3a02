"""TESTS: the two disks of a guest that was switched off, made without mounting anything: base and overlay."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import synthetic_run

MIB = 1 << 20
SIZES = {"lab-telemetry": 24, "lab-root": 40, "lab-mirror": 24, "lab-backups": 24}
DISKS = {"system.qcow2": ("lab-telemetry", "lab-root"), "data.qcow2": ("lab-mirror", "lab-backups")}
NEEDED = ("qemu-img", "sfdisk", "mke2fs", "e2fsck", "debugfs")


def missing() -> list[str]:
    """Programs that these tests need and this machine lacks."""
    return [name for name in NEEDED if not shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")]


def live_database(folder: Path, steps: int, name: str = "run.db") -> None:
    """A database as a killed harness leaves it: the last rows in the write-ahead log, nothing closed."""
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / name
        synthetic_run.database(source, steps=steps)
        connection = sqlite3.connect(source)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("DELETE FROM execution_logs WHERE event_type = 'RUN_SEALED'")
        connection.commit()
        folder.mkdir(parents=True, exist_ok=True)
        for path in Path(scratch).iterdir():
            shutil.copyfile(path, folder / path.name)
        assert (folder / f"{name}-wal").stat().st_size > 0
        connection.close()


def rows(path: Path) -> int:
    connection = sqlite3.connect(path)
    (count,) = connection.execute("SELECT COUNT(*) FROM execution_logs").fetchone()
    connection.close()
    return count


def trees(root: Path, steps: int = 12) -> dict[str, Path]:
    """What lies on each partition: a run that was cut off after `steps` steps, two generations, odd files."""
    made = {label: root / label for label in SIZES}
    workspace = made["lab-root"] / "sandbox/workspace"
    (workspace / "notes").mkdir(parents=True)
    (workspace / "notes/find.md").write_text("sha256 is fastest here\n")
    (workspace / "notes/odd \\ name\nwith a break.md").write_text("odd")
    (workspace / "leak").symlink_to("/etc/passwd")
    (workspace / "big.bin").write_bytes(bytes(range(256)) * 6000)
    live_database(made["lab-telemetry"], steps)
    (made["lab-telemetry"] / "outputs").mkdir()
    (made["lab-telemetry"] / "outputs/1.txt").write_text("total 0\n")
    live_database(made["lab-mirror"], steps)
    for number, text in ((9, "older"), (10, "newest")):
        generation = made["lab-backups"] / f"gen-{number:05d}/notes"
        generation.mkdir(parents=True)
        (generation / "find.md").write_text(text)
    (made["lab-backups"] / "gen-00011.partial").mkdir()
    return made


def build(
    disks: Path, made: dict[str, Path], damage: Callable[[Path, dict[str, int]], None] | None = None
) -> None:
    """system.qcow2 and data.qcow2 in the folder `disks`, as overlays on frozen, empty ones.

    damage: gets each raw disk and its partitions' first bytes before it becomes an overlay.
    """
    disks.mkdir(parents=True)
    frozen = disks.parent / "set"
    frozen.mkdir()
    for name, labels in DISKS.items():
        raw = disks / f"{name}.raw"
        offsets = _partitioned(raw, labels)
        base = frozen / name
        run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, base)
        for label in labels:
            where = f"offset={offsets[label]}"
            run(
                "mke2fs",
                "-q",
                "-F",
                "-t",
                "ext4",
                "-b",
                4096,
                "-L",
                label,
                "-d",
                made[label],
                "-E",
                where,
                raw,
                f"{SIZES[label]}M",
            )
        if damage:
            damage(raw, offsets)
        run("qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", base, disks / name)
        run("qemu-img", "convert", "-n", "-f", "raw", "-O", "qcow2", raw, disks / name)
        raw.unlink()


def _partitioned(raw: Path, labels: tuple[str, ...]) -> dict[str, int]:
    with raw.open("wb") as file:
        file.truncate((2 + sum(SIZES[label] for label in labels)) * MIB)
    table = "label: gpt\n" + "".join(f"size={SIZES[label]}MiB, name={label}\n" for label in labels[:-1])
    run("sfdisk", "--quiet", "--no-reread", "--no-tell-kernel", raw, stdin=table + f"name={labels[-1]}\n")
    first, second = MIB, MIB + SIZES[labels[0]] * MIB
    return dict(zip(labels, (first, second), strict=True))


def run(*command: object, stdin: str = "") -> str:
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    done = subprocess.run(
        [str(word) for word in command],
        input=stdin,
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout
