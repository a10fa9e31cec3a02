"""GUEST: reads run.json into a frozen dataclass, and derives every path from its `sandbox`."""

from __future__ import annotations

import json
import math
import types
import typing
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

from harness.errors import SettingsError

NETWORKS = ("open", "sealed")
ABOVE_ZERO = ("minutes", "budget_usd", "nudge_every_minutes", "request_timeout_seconds", "repeat_window")


@dataclass(frozen=True)
class Settings:
    """The settings of one run; meanings stand in docs/interfaces.md and inventory/group_vars/all/run.yml."""

    run_id: str
    minutes: float
    budget_usd: float
    gateway_url: str
    token: str
    model: str
    inspector_model: str
    price_input_per_mtok: float
    price_output_per_mtok: float
    max_completion_tokens: int
    request_timeout_seconds: float
    task: str | None
    prompt: str | None
    sandbox: str
    tool_user: str | None
    backup_command: list[str]
    window_max_steps: int
    window_min_steps: int
    digest_max_tokens: int
    backup_every_steps: int
    nudge_every_minutes: float
    command_timeout_seconds: float
    command_memory_fraction: float
    command_max_processes: int
    disk_limit_percent: float
    report_reserve_fraction: float
    repeat_limit: int
    repeat_window: int
    output_limit_chars: int
    network_programs: list[str]
    network: str = "open"  # or sealed: what the prompt says of the internet
    nonce: str = ""  # of this start of the run; RUN_STARTED tells it to the gateway, which takes no other

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, (int, float)) and not 0 <= value < math.inf:  # json.loads reads NaN
                raise SettingsError(f"{name} is {value}: wanted a number from 0 up")
        if not all(getattr(self, name) for name in ABOVE_ZERO):
            raise SettingsError(f"{', '.join(ABOVE_ZERO)} must be above zero")
        if self.network not in NETWORKS:
            raise SettingsError(f"network is {self.network!r}, and not one of {', '.join(NETWORKS)}")
        if not 0 < self.window_min_steps <= self.window_max_steps:
            raise SettingsError("window_min_steps must be above zero and not above window_max_steps")

    @property
    def length_seconds(self) -> float:
        return self.minutes * 60

    @cached_property
    def paths(self) -> Paths:
        return Paths(Path(self.sandbox))


@dataclass(frozen=True)
class Paths:
    """Every place in the sandbox that the harness touches."""

    sandbox: Path

    @cached_property
    def workspace(self) -> Path:
        return self.sandbox / "workspace"

    @cached_property
    def notes(self) -> Path:
        return self.workspace / "notes"

    @cached_property
    def scripts(self) -> Path:
        return self.workspace / "scripts"

    @cached_property
    def tmp(self) -> Path:
        return self.sandbox / "tmp"

    @cached_property
    def shown_outputs(self) -> Path:
        """Full outputs of commands with nothing external in them; the Worker may read these."""
        return self.tmp / "outputs"

    @cached_property
    def telemetry(self) -> Path:
        return self.sandbox / "telemetry"

    @cached_property
    def outputs(self) -> Path:
        return self.telemetry / "outputs"

    @cached_property
    def primary_db(self) -> Path:
        return self.telemetry / "run.db"

    @cached_property
    def mirror_db(self) -> Path:
        return self.sandbox / "mirror" / "run.db"

    @cached_property
    def sealed_db(self) -> Path:
        return self.telemetry / "sealed" / "run.db"

    @cached_property
    def summary(self) -> Path:
        return self.telemetry / "summary.json"


def load(path: str | Path) -> Settings:
    """Read run.json. Raises SettingsError naming the file and the key."""
    try:
        raw = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error
    if not isinstance(raw, dict):
        raise SettingsError(f"{path} is not a JSON object")
    return from_dict(raw, str(path))


def from_dict(raw: dict, origin: str = "the settings") -> Settings:
    known = {field.name for field in fields(Settings)}
    if unknown := sorted(set(raw) - known):
        raise SettingsError(f"{origin} has keys nobody reads: {', '.join(unknown)}")
    if missing := sorted(known - set(raw) - {"nonce", "network"}):  # a run of an older kit has none
        raise SettingsError(f"{origin} lacks: {', '.join(missing)}")
    hints = typing.get_type_hints(Settings)
    for name, value in raw.items():
        if not _fits(value, hints[name]):
            raise SettingsError(f"{origin}: {name} is {type(value).__name__}, wanted {hints[name]}")
    return Settings(**raw)


def _fits(value: object, hint: object) -> bool:
    if isinstance(hint, types.UnionType):
        return any(_fits(value, option) for option in typing.get_args(hint))
    if hint is type(None):
        return value is None
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if typing.get_origin(hint) is list:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return isinstance(value, hint)  # type: ignore[arg-type]
