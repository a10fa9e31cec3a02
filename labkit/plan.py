"""HOST: one run as it was asked for: what it may be, and the settings that harness and gateway get of it."""

from __future__ import annotations

import datetime
import math
import os
import pwd
import secrets
import shutil
import sys
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from harness.settings import NETWORKS, Settings, SettingsError, from_dict
from labkit import runs, texts
from labkit.analysis.text import dollars
from labkit.config import REPO, Lab
from labkit.errors import USAGE, LabError
from labkit.gateway import days
from labkit.gateway.completion import Hook
from labkit.gateway.config import GatewayConfig, token_hash
from labkit.gateway.helpers import Helpers

MAX_MINUTES = 48 * 60
MAX_BUDGET_USD = 10_000
REHEARSAL = "rehearsal"


@dataclass(frozen=True)
class Plan:
    """One run as asked for: inventory overridden by the options of `lab run`."""

    run_id: str
    minutes: float
    budget_usd: float
    provider: str
    model: str
    inspector_model: str
    task: str
    network: str = "open"  # see network_gate.MODES
    prompt: str = ""  # a Worker's prompt in place of the shipped template; empty: the shipped one
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))  # of this start: see the ledger


def make(
    lab: Lab,
    minutes: float | None = None,
    budget: float | None = None,
    model: str | None = None,
    inspector_model: str | None = None,
    task_file: Path | None = None,
    prompt_file: Path | None = None,
    network: str | None = None,
) -> Plan:
    """Check what was asked for; LabError (usage) names what is wrong. Nothing is changed."""
    run = lab.run
    minutes = _within("minutes", run["run_minutes"] if minutes is None else minutes, 1, MAX_MINUTES)
    budget = _within("budget", run["run_budget_usd"] if budget is None else budget, 0.01, MAX_BUDGET_USD)
    model = model or run["run_model"]
    provider = REHEARSAL if model == REHEARSAL else run["run_provider"]
    if provider not in run["run_providers"]:
        raise LabError(
            f"run_provider '{provider}' is not in run_providers",
            f"there are: {', '.join(run['run_providers'])}",
            USAGE,
        )
    if provider == REHEARSAL:
        model = REHEARSAL
    inspector = inspector_model or run["run_inspector_model"] or model
    if (inspector == REHEARSAL) != (model == REHEARSAL):
        raise LabError("the rehearsal plays both agents", "leave out --inspector-model", USAGE)
    task = run["run_task"].strip() if task_file is None else texts.read("task", task_file).strip()
    prompt = "" if prompt_file is None else texts.prompt(prompt_file, task)
    network = demand_network(network or run["run_network"])
    wanted = Plan(_new_run_id(), minutes, budget, provider, model, inspector, task, network, prompt)
    _demand_sound(lab, wanted)
    _demand_day_holds(lab, wanted)
    return wanted


def _demand_sound(lab: Lab, wanted: Plan) -> None:
    """The guest's and the gateway's own readers look at the settings here, where a person can mend them."""
    try:
        from_dict({**harness_settings(lab, wanted), "token": ""}, "run.yml")
    except SettingsError as error:
        raise LabError(str(error), "mend run.yml; nothing was changed", USAGE) from error
    gateway_config(lab, wanted, "")
    program = next(iter(lab.run["run_on_complete_command"]), "")
    if (
        program
        and shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin") is None
    ):
        message = f"run_on_complete_command: there is no program {program}"
        raise LabError(message, "correct it in run.yml: it is told only when the run is over", USAGE)


def _demand_day_holds(lab: Lab, wanted: Plan) -> None:
    """A run that the day's cap would end early is better refused."""
    cap = lab.run["run_day_budget_usd"]
    if cap and wanted.provider != REHEARSAL and wanted.budget_usd > cap:
        message = f"the budget {dollars(wanted.budget_usd)} is above run_day_budget_usd ({dollars(cap)})"
        raise LabError(message, "raise that in run.yml, or give a smaller --budget", USAGE)


def data_use(lab: Lab, wanted: Plan) -> list[str]:
    """What a person must know about the chosen models before anything is sent to them."""
    models = dict.fromkeys((wanted.model, wanted.inspector_model))
    warnings = lab.run["run_model_warnings"].items()
    return [f"{model}: {warning}" for model in models for word, warning in warnings if word in model]


def harness_settings(lab: Lab, wanted: Plan) -> dict[str, Any]:
    """run.json as docs/interfaces.md describes it, without the token."""
    same = {name: lab.run[f"run_{name}"] for name in _harness_names() if f"run_{name}" in lab.run}
    return same | {
        "run_id": wanted.run_id,
        "nonce": wanted.nonce,
        "network": wanted.network,
        "minutes": wanted.minutes,
        "budget_usd": wanted.budget_usd,
        "gateway_url": _gateway_url(lab),
        "model": wanted.model,
        "inspector_model": wanted.inspector_model,
        "task": wanted.task or None,
        "prompt": wanted.prompt or None,
        "sandbox": lab.guest["lab_sandbox"],
        "tool_user": lab.guest["lab_worker_user"],
        "backup_command": ["/usr/local/sbin/lab-backup"],
    }


def _harness_names() -> list[str]:
    return [one.name for one in fields(Settings)]


def _gateway_url(lab: Lab) -> str:
    return f"http://{lab.guest['lab_host_address']}:{lab.run['run_gateway_port']}"


def gateway_config(lab: Lab, wanted: Plan, token: str) -> GatewayConfig:
    """What the gateway of this run is started with; LabError (usage) for values that can't work."""
    provider = lab.run["run_providers"][wanted.provider]
    return GatewayConfig(
        run_id=wanted.run_id,
        bind=lab.guest["lab_host_address"],
        port=lab.run["run_gateway_port"],
        provider=wanted.provider,
        base_url=provider["base_url"],
        key_env=provider["key_env"],
        models=tuple(dict.fromkeys((wanted.model, wanted.inspector_model))),
        token_sha256=token_hash(token),
        budget_usd=wanted.budget_usd,
        price_input_per_mtok=lab.run["run_price_input_per_mtok"],
        price_output_per_mtok=lab.run["run_price_output_per_mtok"],
        max_completion_tokens=lab.run["run_max_completion_tokens"],
        minutes=wanted.minutes,
        pages_base=_gateway_url(lab),
        key_file=str(caller_home() / ".config" / "vm-lab" / f"{wanted.provider}.key"),
        nonce=wanted.nonce,
        guest_address=lab.address,
        page_bind=lab.run["run_page_address"],
        page_port=lab.run["run_page_port"],
        day_budget_usd=lab.run["run_day_budget_usd"],
        days_dir=str(lab.state_dir / days.FOLDER),
        management_key_env=provider.get("management_key_env", ""),
    )


def hook(lab: Lab) -> Hook:
    """What the gateway does once when the run is over."""
    return Hook(tuple(lab.run["run_on_complete_command"]), lab.run["run_on_complete_webhook"])


def helpers(lab: Lab, run_id: str) -> Helpers:
    """What the gateway's watchdog starts when the session is in trouble, with the inventory of now."""
    program = f"import sys; sys.path.insert(0, {str(REPO)!r}); from labkit.mend import main; "
    program += "sys.exit(main(sys.argv[1:]))"
    where = (str(lab.inventory.resolve()), str(runs.default_root().resolve()), run_id)
    line = (sys.executable, "-P", "-c", program, *where)
    return Helpers(guest=(*line, "guest"), repair=(*line, "repair"), seal=(*line, "seal"))


def caller_home() -> Path:
    """The home of the person who typed the command, also under sudo."""
    try:
        return Path(pwd.getpwuid(int(os.environ.get("SUDO_UID", os.getuid()))).pw_dir)
    except (KeyError, ValueError):  # a container's user without an entry, or a foreign SUDO_UID
        return Path.home()


def _new_run_id() -> str:
    return f"{datetime.datetime.now(datetime.UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def _within(name: str, value: float, low: float, high: float) -> float:
    if not math.isfinite(value) or not low <= value <= high:
        raise LabError(f"--{name} {value} is not between {low} and {high}", "nothing was changed", USAGE)
    return float(value)


def demand_network(mode: str) -> str:
    """The mode as it is; LabError (usage) where there is no such."""
    if mode not in NETWORKS:
        raise LabError(f"the network can't be '{mode}'", f"it is one of: {', '.join(NETWORKS)}", USAGE)
    return mode
