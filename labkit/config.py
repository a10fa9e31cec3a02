"""HOST: what a person tuned: reads inventory/group_vars/all and names the lab's folders."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from labkit import limits, run_limits
from labkit.errors import USAGE, LabError

REPO = Path(__file__).resolve().parent.parent
SHIPPED_INVENTORY = REPO / "inventory"
HOSTS_FILE = "hosts.yml"
GROUPS = ("hypervisors", "guests")
GUEST_FILE = "group_vars/all/guest.yml"
RUN_FILE = "group_vars/all/run.yml"


@dataclass(frozen=True)
class Lab:
    """One lab: its inventory and the folders that follow from it.

    guest: the variables of guest.yml. run: those of run.yml.
    """

    inventory: Path
    guest: dict[str, Any] = field(repr=False)
    run: dict[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        return self.guest["lab_name"]

    @property
    def state_dir(self) -> Path:
        return Path(self.guest["lab_state_dir"])

    @property
    def dir(self) -> Path:
        """Everything of this lab: disks, set, keys, gateway."""
        return self.state_dir / self.name

    @property
    def images_dir(self) -> Path:
        """Bootstrapped images, shared by all labs of this host, one folder a content address."""
        return self.state_dir / "images"

    @property
    def disks_dir(self) -> Path:
        return self.dir / "disks"

    @property
    def set_dir(self) -> Path:
        return self.dir / "set"

    @property
    def keys_dir(self) -> Path:
        return self.dir / "keys"

    @property
    def gateway_dir(self) -> Path:
        return self.dir / "gateway"

    @property
    def address(self) -> str:
        return self.guest["lab_guest_address"]

    @property
    def variables(self) -> dict[str, Any]:
        return {**self.guest, **self.run}


def load(inventory: Path | None = None) -> Lab:
    """Read an inventory folder; unset variables keep the shipped value.

    Raises LabError (usage) when a file can't be read, or a variable is unknown or mistyped.
    """
    folder = Path(inventory or os.environ.get("LAB_INVENTORY") or SHIPPED_INVENTORY).resolve()
    for file in (HOSTS_FILE, GUEST_FILE, RUN_FILE):
        if not (folder / file).is_file():
            raise LabError(
                f"no inventory at {folder}: {file} is missing there",
                "copy the project's inventory/ folder and change what you need",
                USAGE,
            )
    _demand_hosts(folder / HOSTS_FILE)
    lab = Lab(folder, _variables(folder, GUEST_FILE), _variables(folder, RUN_FILE))
    if problem := _problem(lab):
        raise LabError(f"{problem} (inventory {folder})", "mend it there; nothing was changed", USAGE)
    return lab


def _problem(lab: Lab) -> str:
    of_run = run_limits.problem_of_run(lab.run) or run_limits.problem_of_hook(lab.run)
    return limits.problem_of(lab.guest) or of_run


def _variables(folder: Path, file: str) -> dict[str, Any]:
    shipped = _read(SHIPPED_INVENTORY / file)
    given = _read(folder / file)
    for name, value in given.items():
        _check(folder / file, name, value, shipped)
    values = {**shipped, **given}
    if "run_providers" in values:  # who adds a provider does not lose the shipped ones
        if problem := run_limits.problem_of_providers(values["run_providers"]):
            raise LabError(f"{problem} ({folder / file})", "mend it there; nothing was changed", USAGE)
        values["run_providers"] = {**shipped["run_providers"], **values["run_providers"]}
    return values


def _demand_hosts(path: Path) -> None:
    """Ansible would miss its groups minutes later."""
    known = _read(path)
    below = known.get("all") if isinstance(known.get("all"), dict) else {}
    groups = known | (below["children"] if isinstance(below.get("children"), dict) else {})
    for name in GROUPS:
        if not isinstance(groups.get(name), dict) or not groups[name].get("hosts"):
            hint = "take the project's inventory/hosts.yml as it is: nothing in it needs a change"
            raise LabError(f"{path} has no host in the group {name}", hint, USAGE)


class NothingTwice(yaml.SafeLoader):
    """YAML in which nothing stands twice: of two lines for one variable the last would win without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        seen = {"<<": None}
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if seen.setdefault(key.value, key) not in (key, None):
                raise yaml.MarkedYAMLError(problem=f"{key.value} stands twice", problem_mark=key.start_mark)
        return super().construct_mapping(node, deep)


def _read(path: Path) -> dict[str, Any]:
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), NothingTwice) or {}  # noqa: S506  a SafeLoader
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError, ValueError) as error:
        reason = why_unreadable(error)
        raise LabError(f"can't read {path}: {reason}", "mend the file; nothing was changed", USAGE) from error
    if not isinstance(values, dict):
        raise LabError(f"{path} holds no variables", "it wants `name: value` lines", USAGE)
    return values


def why_unreadable(error: Exception) -> str:
    """Of a YAML file, in words: the line, or what the system says."""
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        return f"line {mark.line + 1}: {' '.join(str(error.problem).split())}"
    if isinstance(error, UnicodeDecodeError):
        return "it is not text in UTF-8"
    return getattr(error, "strerror", None) or " ".join(str(error).split())


def _where_it_belongs(name: str, path: Path, shipped: dict[str, Any]) -> str:
    other = RUN_FILE if path.name == Path(GUEST_FILE).name else GUEST_FILE
    if name in _read(SHIPPED_INVENTORY / other):
        return f"it belongs in {other}"
    near = difflib.get_close_matches(name, shipped, n=1)
    return f"did you mean {near[0]}?" if near else "the shipped inventory/ lists every variable"


def _check(path: Path, name: str, value: Any, shipped: dict[str, Any]) -> None:
    if name not in shipped:
        hint = _where_it_belongs(str(name), path, shipped)
        raise LabError(f"unknown variable {name} in {path}", hint, USAGE)
    wanted = type(shipped[name])
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return
    if not isinstance(value, wanted) or isinstance(value, bool) is not (wanted is bool):
        raise LabError(
            f"{name} in {path} must be of type {wanted.__name__}, not {value!r}",
            "mend the file; nothing was changed",
            USAGE,
        )
