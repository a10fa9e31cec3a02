"""HOST: one hash over everything `lab up` builds the guest from, and its parts, which name what changed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.config import REPO, Lab

# Roles that act only during or after a run never change the snapshot.
NOT_IN_THE_SNAPSHOT = {"harness", "collect"}
PLAYBOOKS = ("up.yml", "safeguards.yml", "rebooted.yml", "snapshot.yml")

# What can be applied again to a guest that has it. A changed image, domain, disk, path or account wants a new
# guest, and so does a file or a value that went away: what it once did would stay.
CONVERGING_VARIABLES = {"lab_host_ca_bundle"}
CONVERGING_PLACES = (
    "playbooks/safeguards.yml",
    "playbooks/snapshot.yml",
    "roles/backups/",
    "roles/no_delete/",
    "roles/snapshot/",
    "roles/users/",
    "roles/workspace/",
)


@dataclass(frozen=True)
class Change:
    """One difference between what a set was made from and what is wanted now.

    name: a variable or a path. said: the change in words. converges: applying the safeguards again will do.
    """

    name: str
    said: str
    converges: bool


def of(lab: Lab) -> str:
    """Hex SHA-256 over guest.yml's values, the playbooks and the roles that `up` uses."""
    digest = hashlib.sha256(json.dumps(lab.guest, sort_keys=True).encode())
    for path in sorted(_sources()):
        digest.update(str(path.relative_to(REPO)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def parts(lab: Lab) -> dict[str, dict[str, Any]]:
    """{"variables": {name: value}, "files": {path below the repository: hex SHA-256}}: what `of` hashes."""
    hashes = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in _sources()}
    files = {str(path.relative_to(REPO)): digest for path, digest in hashes.items()}
    return {"variables": lab.guest, "files": files}


def changes(old: dict[str, dict[str, Any]], new: dict[str, dict[str, Any]]) -> list[Change]:
    """What differs between two `parts`, variables first, by name."""
    return _variables(old["variables"], new["variables"]) + _files(old["files"], new["files"])


def _variables(old: dict[str, Any], new: dict[str, Any]) -> list[Change]:
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    found = []
    for name in names:
        only_added = name in CONVERGING_VARIABLES and not old.get(name)
        found.append(Change(name, f"{name}: {_from_to(old, new, name)}", only_added))
    return found


def _from_to(old: dict[str, Any], new: dict[str, Any], name: str) -> str:
    before, after = old.get(name), new.get(name)
    if isinstance(before, list) and isinstance(after, list):
        gone, come = ([one for one in a if one not in b] for a, b in ((before, after), (after, before)))
        words = [f"without {', '.join(map(str, gone))}"] if gone else []
        words += [f"with {', '.join(map(str, come))}"] if come else []
        return "; ".join(words) or "in another order"
    return f"{before!r} is now {after!r}"


def _files(old: dict[str, str], new: dict[str, str]) -> list[Change]:
    found = []
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            word = "new" if name not in old else "gone" if name not in new else "changed"
            found.append(Change(name, f"{name} ({word})", name in new and name.startswith(CONVERGING_PLACES)))
    return found


def _sources() -> list[Path]:
    roles = [
        role for role in (REPO / "roles").iterdir() if role.is_dir() and role.name not in NOT_IN_THE_SNAPSHOT
    ]
    files = [path for role in roles for path in role.rglob("*") if path.is_file() and _counts(path)]
    return files + [REPO / "playbooks" / name for name in PLAYBOOKS]


def _counts(path: Path) -> bool:
    return path.name != "README.md" and "__pycache__" not in path.parts
