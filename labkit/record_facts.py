"""HOST: what a run's manifest says of its databases: whether they hold, their rows, the prompts in them."""

from __future__ import annotations

import hashlib
from itertools import islice
from pathlib import Path

from labkit.analysis import sqlite_file
from labkit.analysis.load import REFERENCE_TABLES
from labkit.errors import LabError

MAX_PROMPT_CHARS = 200_000
MAX_TABLES = 100
PROMPT_SECONDS = 60.0


def prompts(path: Path) -> dict:
    """The prompts as run.db holds them, hashed here. Empty for a run.db that does not hold."""
    found = {}
    try:
        with sqlite_file.opened(path, PROMPT_SECONDS) as connection:
            if "prompts" not in sqlite_file.tables(connection):  # a view of that name might never end
                return {}
            sql = "SELECT name, substr(content, 1, ?) FROM prompts LIMIT 20"
            for name, content in connection.execute(sql, (MAX_PROMPT_CHARS,)):
                digest = hashlib.sha256(str(content).encode("utf-8", "replace")).hexdigest()
                found[str(name)[:80]] = {"sha256": digest, "content": str(content)}
    except LabError:
        return {}
    return found


def database(path: Path) -> dict:
    if not path.is_file():
        return {"integrity": "missing", "tables": {}}
    found = sqlite_file.integrity(path)
    absent = [name for name in REFERENCE_TABLES if name not in found["tables"]]
    if found["integrity"] == "ok" and absent:
        found["integrity"] = f"no table {', '.join(absent)}"
    found["tables"] = {name[:80]: count for name, count in islice(found["tables"].items(), MAX_TABLES)}
    return found
