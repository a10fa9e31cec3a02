"""HOST: what this lab has made and what is in the guest now: `state.json` in the lab's folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from labkit.errors import LabError

# Keys: fingerprint (of what `up` built from), made (libvirt objects of ours, by uuid), marker (file
# written after the last resume), run (run_id of the session in the guest), collected (bool),
# dirty (bool: the guest has been used since the last revert).


def read(lab_dir: Path) -> dict[str, Any]:
    """The lab's state; empty when there is none yet."""
    path = lab_dir / "state.json"
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise LabError(
            f"can't read {path}: {error}", "run as root; if the file is damaged, `lab down` and `lab up`"
        ) from error


def update(lab_dir: Path, **changes: Any) -> dict[str, Any]:
    """Change some keys, durably; None removes a key. Returns the new state."""
    state = {**read(lab_dir), **changes}
    state = {key: value for key, value in state.items() if value is not None}
    write_json(lab_dir / "state.json", state)
    return state


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file so that a crash leaves the old one or the new one, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with partial.open("w") as file:
        json.dump(value, file, indent=1, sort_keys=True)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
