"""HOST: the start of a run: what it is allowed to be, its settings, its gateway."""

from __future__ import annotations

import contextlib
import datetime
import math
import os
import pwd
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from harness.settings import Settings
from labkit import playbooks, presence, runs, snapshot, state
from labkit.config import Lab
from labkit.errors import UNREACHABLE, USAGE, LabError
from labkit.gateway import keys, process
from labkit.gateway.config import GatewayConfig, token_hash
from labkit.gateway.files import read_lines
from labkit.gateway.ledger import EVENTS
from labkit.guest import Hypervisor
from labkit.harness_archive import build
from labkit.progress import Progress
from labkit.ssh import Shell

MAX_MINUTES = 48 * 60
MAX_BUDGET_USD = 10_000
BOOT_SECONDS = 300  # an emulated guest takes about 70
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


def place(lab: Lab) -> snapshot.Place:
    """The lab's guest, as the snapshot sees it."""
    return snapshot.Place(lab.name, lab.dir, lab.address)


def plan(
    lab: Lab,
    minutes: float | None = None,
    budget: float | None = None,
    model: str | None = None,
    inspector_model: str | None = None,
    task_file: Path | None = None,
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
    return Plan(_new_run_id(), minutes, budget, provider, model, inspector, _task(run["run_task"], task_file))


def refuse_uncollected(lab: Lab, discard: bool) -> None:
    """LabError while a run that nobody collected is in the guest, unless it may be thrown away."""
    known = state.read(lab.dir)
    if known.get("run") and not known.get("collected") and not discard:
        raise LabError(
            f"run {known['run']} is in the guest '{lab.name}' and was not collected",
            "`lab collect` brings it to runs/; `--discard` throws it away",
        )


def begin(lab: Lab, wanted: Plan, keep: bool, progress: Progress) -> Path:
    """Revert (unless `keep`), start the gateway, install and start the harness. Returns the gateway's folder.

    Raises LabError before anything changes where a key is missing or there is no verified snapshot.
    """
    where = place(lab)
    snapshot.require_verified(where)
    token = secrets.token_urlsafe(32)
    gateway = _gateway_config(lab, wanted, token)
    keys.provider_key(gateway)
    for warning in data_use(lab, wanted):
        progress.say(f"WARNING: {warning}")
    with progress.step("building the harness archive"):
        archive = build(lab)
    stop_gateways(lab)  # of a run that was thrown away: it would hold the port
    with progress.step("going on with the guest as it is" if keep else "reverting to the snapshot"):
        _bring_up(where, keep, progress)
    run_dir = lab.gateway_dir / wanted.run_id
    run_dir.mkdir(parents=True, mode=0o700)
    settings = harness_settings(lab, wanted)
    state.write_json(run_dir / "run.json", settings)
    state.update(lab.dir, run=wanted.run_id, collected=False, dirty=True)
    with _forgotten_unless_begun(lab, run_dir, keep):
        with progress.step("starting the gateway"):
            process.start(run_dir, gateway)
        with progress.step("installing the harness and starting the session"):
            playbooks.run(
                "run",
                lab,
                progress.detail,
                lab_harness_archive=str(archive),
                lab_harness_settings={**settings, "token": token},
            )
    return run_dir


@contextlib.contextmanager
def _forgotten_unless_begun(lab: Lab, run_dir: Path, keep: bool) -> Iterator[None]:
    """A start that failed must not stand in the way of the next one: without an event there is no run.

    Its gateway's folder stays, with a note. The guest goes off (unless kept), so that a harness that
    started late does not go on without its gateway.
    """
    try:
        yield
    except BaseException as error:
        if next(read_lines(run_dir / EVENTS), None) is None:
            with contextlib.suppress(LabError):  # the first error is the one to be read
                process.stop(run_dir)
            state.write_json(run_dir / "not-started.json", {"reason": str(error) or type(error).__name__})
            state.update(lab.dir, run=None, collected=None)
            if not keep:
                with contextlib.suppress(LabError):
                    snapshot.switch_off(place(lab))
        raise


def stop_gateways(lab: Lab) -> None:
    """End every gateway of this lab that still runs."""
    for folder in sorted(lab.gateway_dir.glob("*")):
        process.stop(folder)


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
        "minutes": wanted.minutes,
        "budget_usd": wanted.budget_usd,
        "gateway_url": _gateway_url(lab),
        "model": wanted.model,
        "inspector_model": wanted.inspector_model,
        "task": wanted.task or None,
        "sandbox": lab.guest["lab_sandbox"],
        "tool_user": lab.guest["lab_worker_user"],
        "backup_command": ["/usr/local/sbin/lab-backup"],
    }


def _harness_names() -> list[str]:
    return [field.name for field in fields(Settings)]


def current(lab: Lab) -> Path:
    """The gateway's folder of the run that is in the guest; LabError when there is none."""
    run_id = state.read(lab.dir).get("run")
    if not run_id:
        raise LabError(
            f"no run is in the guest '{lab.name}'", "`lab run` starts one; `lab runs` lists collected ones"
        )
    return lab.gateway_dir / run_id


def watchable(lab: Lab) -> Path:
    """Like `current`; LabError when the host's folder of that run is gone, so that nothing can be shown."""
    folder = current(lab)
    if not (folder / "gateway.json").is_file():
        raise LabError(
            f"the gateway's folder {folder} of run {folder.name} is missing or empty",
            "`lab collect --stop` brings what the guest holds",
        )
    return folder


def collect(lab: Lab, folder: Path, stop: bool, on_task: Callable[[str], None]) -> Path:
    """Bring the run of gateway folder `folder` to the caller's runs/; returns its folder there.

    stop: end a session that still runs; without it that is refused.
    """
    presence.demand_running(lab, f"run {folder.name} can't be collected from it")
    target = runs.default_root().resolve() / folder.name
    playbooks.run(
        "collect",
        lab,
        on_task,
        lab_collect_stop=stop,
        lab_gateway_folder=str(folder),
        lab_run_target=str(target),
    )
    return target


def _bring_up(where: snapshot.Place, keep: bool, progress: Progress) -> None:
    if not keep:
        receipt = snapshot.revert(where)
        snapshot.demand(receipt)
        progress.say(receipt.line())
        return
    with Hypervisor() as hypervisor:
        found = hypervisor.state(where.name)
        if found == "absent":
            raise LabError(f"there is no guest named '{where.name}'", "`lab up` builds it", UNREACHABLE)
        if found == "paused":
            raise LabError(f"the guest '{where.name}' is paused", "`lab status` says why", UNREACHABLE)
        hypervisor.start_network(where.name)
        hypervisor.start(where.name)
    Shell(where.address, where.keys_dir, seconds=BOOT_SECONDS).client.close()


def _gateway_url(lab: Lab) -> str:
    return f"http://{lab.guest['lab_host_address']}:{lab.run['run_gateway_port']}"


def _gateway_config(lab: Lab, wanted: Plan, token: str) -> GatewayConfig:
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
    )


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


def _task(text: str, file: Path | None) -> str:
    if file is None:
        return text.strip()
    try:
        task = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"can't read the task file {file}: {error}", "nothing was changed", USAGE) from error
    if not task:
        raise LabError(f"the task file {file} is empty", "leave --task out to let the Worker choose", USAGE)
    return task
