"""HOST: one hash over everything `lab up` builds the guest from: decides whether a second `up` has work."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from labkit.config import REPO, Lab

# Roles that act only during or after a run never change the snapshot.
NOT_IN_THE_SNAPSHOT = {"harness", "collect"}
PLAYBOOKS = ("up.yml", "safeguards.yml", "snapshot.yml")


def of(lab: Lab) -> str:
    """Hex SHA-256 over guest.yml's values, the playbooks and the roles that `up` uses."""
    digest = hashlib.sha256(json.dumps(lab.guest, sort_keys=True).encode())
    for path in sorted(_sources()):
        digest.update(str(path.relative_to(REPO)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _sources() -> list[Path]:
    roles = [
        role for role in (REPO / "roles").iterdir() if role.is_dir() and role.name not in NOT_IN_THE_SNAPSHOT
    ]
    files = [path for role in roles for path in role.rglob("*") if path.is_file() and _counts(path)]
    return files + [REPO / "playbooks" / name for name in PLAYBOOKS]


def _counts(path: Path) -> bool:
    return path.name != "README.md" and "__pycache__" not in path.parts
