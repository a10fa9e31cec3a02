"""HOST: what this lab has made and what is in the guest now: `state.json` in the lab's folder."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from labkit import lock
from labkit.errors import LabError

# Keys: fingerprint (of what `up` built from), image (folder of the image it was built from), made (libvirt
# objects of ours, by uuid), marker (file written after the last resume), run (run_id of the session in the
# guest), collected (bool), dirty (bool: the guest has been used since the last revert).
TYPES = dict.fromkeys(("fingerprint", "image", "marker", "run"), str)
TYPES |= {"made": dict, "collected": bool, "dirty": bool}
RUN = re.compile(r"\w[\w.-]*", re.ASCII)  # it becomes the name of a folder


def read(lab_dir: Path) -> dict[str, Any]:
    """The lab's state; empty when there is none yet."""
    path = lab_dir / "state.json"
    try:
        known = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except OSError as error:
        cure = "lab_state_dir in guest.yml says where that is"
        cure = "run the command as root" if isinstance(error, PermissionError) else cure
        raise LabError(f"can't read {path}: {error.strerror}", cure) from error
    except ValueError as error:
        raise _damaged(path, str(error)) from error
    if not isinstance(known, dict):
        raise _damaged(path, "it holds no object")
    wrong = [key for key, wanted in TYPES.items() if key in known and not isinstance(known[key], wanted)]
    if wrong or not RUN.fullmatch(known.get("run", "none")):
        raise _damaged(path, f"its {(wrong or ['run'])[0]} is not what the kit writes there")
    return known


def _damaged(path: Path, reason: str) -> LabError:
    return LabError(
        f"{path} is damaged: {reason}",
        "`lab down --discard` removes the guest, whatever is in it; then `lab up`",
    )


def set_damaged_aside(lab_dir: Path) -> bool:
    """Rename a state.json that can't be read, so that `lab down --discard` gets past it; True when it was."""
    try:
        read(lab_dir)
    except LabError:
        (lab_dir / "state.json").replace(lab_dir / "state.json.damaged")
        return True
    return False


def update(lab_dir: Path, **changes: Any) -> dict[str, Any]:
    """Change some keys, durably; None removes a key. Returns the new state."""
    with lock.briefly(lab_dir / "state.json.lock"):
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
