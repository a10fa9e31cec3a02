"""GUEST: the files of a seal: the sealed copy of run.db, and JSON. Durable on return, or not there at all."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from pathlib import Path


def copy(db: sqlite3.Connection, target: Path) -> str:
    """VACUUM INTO, never a copied live file. Returns the copy's SHA-256."""
    partial = target.with_suffix(".partial")
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial.unlink(missing_ok=True)
    db.execute("VACUUM INTO ?", (str(partial),))
    with open(partial, "rb") as file:
        os.fsync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    _put(partial, target)
    return digest


def write_json(path: Path, value: dict) -> bool:
    partial = path.with_suffix(".partial")
    with open(partial, "w", encoding="utf-8") as file:
        file.write(json.dumps(value, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    _put(partial, path)
    return True


def _put(partial: Path, target: Path) -> None:
    """Rename for good: a guest may be switched off as soon as its run is sealed."""
    os.replace(partial, target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
