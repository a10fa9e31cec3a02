"""HOST: reads a provider script (YAML, docs/simulate.md) into rows; refuses a key that nobody reads."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from labkit import config, run_limits, texts
from labkit.errors import USAGE, LabError
from labkit.gateway import command_rules
from labkit.simulation.keyed_rows import bad, row, rows

FOLDER = Path(__file__).with_name("providers")
PURPOSES = ("worker", "inspector", "digest", "report")
BEHAVIOURS = ("diligent", "looper", "talker", "never_reports")
USAGES = ("honest", "no_cost", "none", "zero", "huge", "negative", "cached_above_prompt")
# Between the harness and the provider: what comes back is no reply.
TRANSPORT = (
    "slow", "silent", "drip", "cut_stream", "reset", "unreachable", "outage", "empty", "no_choices", "blank",
    "html", "rate_limit", "server", "refused", "in_body", "budget_exhausted", "run_ended",
)  # fmt: skip
# In the reply itself.
REPLY = (
    "malformed_arguments", "unknown_tool", "token_limit", "no_finish", "words_only", "many_calls", "no_ids",
    "odd_text", "loop", "withheld_tool", "wrong_types",
)  # fmt: skip
# Commands of a person, as `lab` sends them, and then what happens to the guest.
COMMANDS = ("finish", "stop", "pause", "unpause", "say", "extend")
MOST_HOURS = 100_000  # eleven years either way
LEAST_LATENCY = 0.01  # seconds
MOST = 1e9  # of what has no limit by nature
# Keys of run.json that a simulation sets itself.
OWN_SETTINGS = ("sandbox", "tool_user", "backup_command", "token", "nonce", "run_id", "gateway_url")
INCIDENTS = (*COMMANDS, "interrupt", "disk_full", "disk_free", "clock_jump", "gateway_away")


@dataclass(frozen=True)
class Latency:
    """Seconds to a reply: lognormal around the median, cut at the longest."""

    median_seconds: float = 8.0
    spread: float = 0.4
    longest_seconds: float = 150.0


@dataclass(frozen=True)
class Prices:
    """Dollars per million tokens as billed; None: as in run.yml. cached_reads: share of the input price."""

    input_per_mtok: float | None = None
    output_per_mtok: float | None = None
    cached_reads: float = 0.1


@dataclass(frozen=True)
class Fault:
    """One row: what goes wrong, for which calls, and when. All conditions that are given must hold.

    probability: of each attempt. steps: step numbers. from_step, to_step: inclusive. from_minute, minutes: a
    stretch of simulated time. attempts: only the first so many of a call. The rest: the fault's own figures.
    """

    kind: str
    purposes: tuple[str, ...] = PURPOSES
    probability: float = 1.0
    steps: tuple[int, ...] = ()
    from_step: int = 0
    to_step: int = 1_000_000_000
    from_minute: float = 0.0
    minutes: float = math.inf
    attempts: int = 1_000_000_000
    seconds: float = 60.0
    retry_after_seconds: float | None = None  # of a rate_limit: 20
    status: int = 0
    code: str = "502"
    message: str = ""
    command: str = "ls -la /sandbox/workspace"
    billed: bool = False


@dataclass(frozen=True)
class Incident:
    """Something that happens to the run once, at a minute of simulated time."""

    at_minute: float
    what: str
    hours: float = 24.0  # of a clock_jump; may be negative
    minutes: float = 10.0  # of gateway_away
    args: dict[str, Any] = field(default_factory=dict)  # of a command


@dataclass(frozen=True)
class Command:
    """What the stand-in of the shell answers to a command that the pattern is found in."""

    match: str
    output: str = ""
    seconds: float = 2.0
    exit_code: int = 0


@dataclass(frozen=True)
class Script:
    """A provider and its surroundings. block_probability: of the Inspector, for each review."""

    name: str = "honest"
    about: str = ""
    latency: Latency = Latency()
    prices: Prices = Prices()
    usage: str = "honest"
    worker: str = "diligent"
    block_probability: float = 0.03
    command_seconds: Latency = Latency(2.0, 0.9, 400.0)
    faults: tuple[Fault, ...] = ()
    incidents: tuple[Incident, ...] = ()
    commands: tuple[Command, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)  # of the run, such as budget_usd

    @classmethod
    def load(cls, which: str | Path) -> Script:
        """A shipped script by its name, or a file. Raises LabError (usage)."""
        path = FOLDER / f"{which}.yml" if str(which) in shipped() else Path(which)
        try:
            data = yaml.load(path.read_text(encoding="utf-8"), config.NothingTwice) or {}  # noqa: S506  a SafeLoader
        except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError, ValueError) as error:
            reason = config.why_unreadable(error)
            raise LabError(
                f"can't read the provider script {str(which) or repr('')}: {reason}",
                f"a file, or one of: {', '.join(shipped())}",
                USAGE,
            ) from error
        return cls.from_dict(data, path.stem)

    @classmethod
    def from_dict(cls, data: dict[str, Any], name: str = "script") -> Script:
        """The same from a dict. Raises LabError (usage) naming the key."""
        if not isinstance(data, dict):
            raise bad(name, "it holds no keys", "it wants `key: value` lines (docs/simulate.md)")
        values = dict(data)
        nested = {"latency": Latency, "prices": Prices, "command_seconds": Latency}
        lists = {"faults": Fault, "incidents": Incident, "commands": Command}
        for key, kind in nested.items():
            if key in values:
                values[key] = row(kind, values[key], name, key)
        for key, kind in lists.items():
            if key in values:
                values[key] = rows(kind, values[key], name, key)
        script = row(cls, {"name": name, **values}, name, "")
        _check(script)
        return script


def shipped() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yml"))


def _check(script: Script) -> None:
    """LabError (usage) for what no session could be played with, or would be read otherwise than meant."""
    name = script.name
    _among(name, "usage", script.usage, USAGES)
    _among(name, "worker", script.worker, BEHAVIOURS)
    _within(name, "", script, block_probability=(0, 1))
    _within(
        name, " in prices", script.prices, **dict.fromkeys(("input_per_mtok", "output_per_mtok"), (0, MOST))
    )
    _within(name, " in prices", script.prices, cached_reads=(0, 1))
    for key in ("latency", "command_seconds"):  # without a least one time would stand still
        seconds = {"median_seconds": (LEAST_LATENCY, MOST), "longest_seconds": (LEAST_LATENCY, math.inf)}
        _within(name, f" in {key}", getattr(script, key), spread=(0, MOST), **seconds)
    if own := sorted(set(script.settings) & set(OWN_SETTINGS)):
        raise bad(name, f"{own[0]} in settings is the simulation's own", "leave it out")
    if script.settings:
        _check_settings(name, script.settings)
    for fault in script.faults:
        _check_fault(name, fault)
    for incident in script.incidents:
        _check_incident(name, incident)
    for command in script.commands:
        _within(name, " in commands", command, seconds=(0, MOST), exit_code=(0, 255))
        _check_pattern(name, command.match)


def _check_settings(name: str, settings: dict[str, Any]) -> None:
    """The limits of run.yml hold here as well. A value of another type is the harness's own to refuse."""
    run = config.load(config.SHIPPED_INVENTORY).run
    given = {f"run_{key}": value for key, value in settings.items() if _fits(run.get(f"run_{key}"), value)}
    if problem := run_limits.problem_of_run({**run, **given}):
        raise bad(name, f"in settings, {problem.replace('run_', '')}", "mend it there")
    if isinstance(prompt := settings.get("prompt"), str) and prompt:
        texts.demand_blanks(f"the prompt of provider script {name}", prompt, settings.get("task") or "")


def _fits(shipped: Any, value: Any) -> bool:
    numbers = (int, float)
    if isinstance(value, bool):
        return isinstance(shipped, bool)
    return type(value) is type(shipped) or (isinstance(value, numbers) and isinstance(shipped, numbers))


def _within(name: str, where: str, row: Any, **limits: tuple[float, float]) -> None:
    for key, (least, most) in limits.items():
        value = getattr(row, key)
        if value is not None and not least <= value <= most:
            raise bad(name, f"{key} {value:g} is out of range{where}", f"from {least:g} to {most:g}")


def _check_fault(name: str, fault: Fault) -> None:
    _among(name, "kind", fault.kind, TRANSPORT + REPLY)
    for purpose in fault.purposes:
        _among(name, "purposes", purpose, PURPOSES)
    if odd := [step for step in fault.steps if not isinstance(step, int) or isinstance(step, bool)]:
        raise bad(name, f"{odd[0]!r} in steps is no step", "numbers of steps: [3, 8]")
    positive = dict.fromkeys(("seconds", "retry_after_seconds", "from_minute"), (0, MOST))
    _within(name, " in faults", fault, probability=(0, 1), minutes=(0, math.inf), **positive)
    if fault.status:
        _within(name, " in faults: it must be a refusal", fault, status=(400, 599))


def _check_incident(name: str, incident: Incident) -> None:
    """A person's command is held to the same rules as at the command line."""
    _among(name, "what", incident.what, INCIDENTS)
    limits = {"at_minute": (0, MOST), "minutes": (0, MOST), "hours": (-MOST_HOURS, MOST_HOURS)}
    _within(name, " in incidents", incident, **limits)
    if incident.what not in COMMANDS:
        return
    try:
        command_rules.checked(incident.what, incident.args)
    except LabError as error:
        raise bad(name, f"{incident.what}: {error.message}", error.hint) from None


def _check_pattern(name: str, pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise bad(name, f"match {pattern!r}: {error}", "it is a regular expression") from None


def _among(name: str, key: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise bad(name, f"{key} {value!r} is unknown", f"there is: {', '.join(known)}")
