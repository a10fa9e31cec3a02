"""HOST: where one lab's guest lives, for what needs no inventory: the snapshot, the roles' modules."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Place:
    """Where one lab's guest lives: its domain name, its folder and its fixed address."""

    name: str
    dir: Path
    address: str

    @property
    def set_dir(self) -> Path:
        return self.dir / "set"

    @property
    def disks_dir(self) -> Path:
        return self.dir / "disks"

    @property
    def keys_dir(self) -> Path:
        return self.dir / "keys"
