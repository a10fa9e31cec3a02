"""HOST: the person who typed the command: what root made under sudo is theirs."""

from __future__ import annotations

import os
from pathlib import Path


def give_to_caller(path: Path) -> None:
    """Gives what root made under sudo to the person who typed it."""
    owner = _caller()
    if owner is None:
        return
    os.chown(path, *owner, follow_symlinks=False)
    for folder, folders, files in os.walk(path):
        for name in folders + files:
            os.chown(os.path.join(folder, name), *owner, follow_symlinks=False)


def _caller() -> tuple[int, int] | None:
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return None
    try:
        return int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"])
    except (KeyError, ValueError):
        return None
