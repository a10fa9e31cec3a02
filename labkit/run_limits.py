"""HOST: which values of run.yml can't work, said before a run is started with them."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from labkit.limits import WORD, outside

NETWORKS = ("open", "sealed")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PROVIDER_KEYS = ("base_url", "key_env", "management_key_env")
# Variable to its lowest and highest value.
RUN_SIZES = {
    "run_minutes": (1, 48 * 60),
    "run_budget_usd": (0.01, 10_000),
    "run_day_budget_usd": (0, 100_000),
    "run_gateway_port": (1, 65_535),
    "run_page_port": (1, 65_535),
    "run_max_completion_tokens": (1, 1_000_000),
    "run_request_timeout_seconds": (5, 3600),
    "run_window_max_steps": (2, 1000),
    "run_window_min_steps": (1, 1000),
    "run_digest_max_tokens": (100, 20_000),
    "run_backup_every_steps": (1, 10_000),
    "run_nudge_every_minutes": (1, 48 * 60),
    "run_command_timeout_seconds": (1, 24 * 3600),
    "run_command_memory_fraction": (0.05, 0.95),
    "run_command_max_processes": (16, 100_000),
    "run_disk_limit_percent": (10, 99),
    "run_report_reserve_fraction": (0.01, 0.5),
    "run_repeat_limit": (2, 100),
    "run_repeat_window": (2, 1000),
    "run_output_limit_chars": (100, 1_000_000),
}


def problem_of_run(run: dict[str, Any]) -> str:
    """The first value of run.yml that can't work, as a sentence; empty when all can."""
    problem = outside(run, RUN_SIZES) or _mode(run["run_network"]) or _page(run["run_page_address"])
    return problem or _guards(run) or _models(run) or _programs(run["run_network_programs"])


def _guards(run: dict[str, Any]) -> str:
    if run["run_repeat_limit"] > run["run_repeat_window"]:
        return "run_repeat_limit is above run_repeat_window: no repetition would ever be seen"
    return ""


def _models(run: dict[str, Any]) -> str:
    for variable in ("run_model", "run_inspector_model"):
        if re.search(r"\s", run[variable]):
            return f"{variable} {run[variable]!r} has a space in it; no model has"
    if not run["run_model"]:
        return "run_model is empty: it names the Worker's model, or `rehearsal`"
    if not all(isinstance(text, str) for pair in run["run_model_warnings"].items() for text in pair):
        return (
            "run_model_warnings wants a text for each word, both in quotes where YAML would not take them so"
        )
    return ""


def _programs(names: list[Any]) -> str:
    for name in names:
        if not isinstance(name, str) or not WORD.fullmatch(name):
            return (
                f"run_network_programs has {name!r}, which is not the name of a program (no path, no options)"
            )
    return ""


def _mode(mode: Any) -> str:
    return "" if mode in NETWORKS else f"run_network is {mode!r}, and not one of {', '.join(NETWORKS)}"


def _page(address: str) -> str:
    try:
        ipaddress.ip_address(address or "::1")
    except ValueError:
        return f"run_page_address {address!r} is not an address of a network card, such as 127.0.0.1"
    return ""


def problem_of_providers(providers: dict[Any, Any]) -> str:
    """What is wrong with run_providers, as a sentence; empty when nothing is."""
    if not providers:
        return "run_providers is empty: leave it out to have the shipped ones, or name one of your own"
    problems = (_provider(name, provider) for name, provider in providers.items())
    return next((problem for problem in problems if problem), "")


def _provider(name: Any, provider: Any) -> str:
    if not isinstance(name, str) or not WORD.fullmatch(name):  # it becomes the name of a key's file
        return f"run_providers has {name!r}, which is not a word of letters, digits, dots and dashes"
    texts = provider if isinstance(provider, dict) else {}
    if not all(isinstance(texts.get(key), str) for key in ("base_url", "key_env")):
        return f"provider {name} in run_providers wants base_url and key_env, both texts"
    if unknown := [str(key) for key in texts if key not in PROVIDER_KEYS]:
        return f"provider {name} in run_providers has {unknown[0]}; it may have {', '.join(PROVIDER_KEYS)}"
    for key in ("key_env", "management_key_env"):
        variable = texts.get(key, "")
        if not isinstance(variable, str) or (variable and not VARIABLE.fullmatch(variable)):
            # Not shown: somebody may have put the key itself there.
            return (
                f"{key} of provider {name} is not the name of a variable (the key itself has no place here)"
            )
    return ""


def problem_of_hook(run: dict[str, Any]) -> str:
    """What is wrong with the two run_on_complete variables, as a sentence; empty when nothing is."""
    if not all(isinstance(word, str) and word for word in run["run_on_complete_command"]):
        return "run_on_complete_command wants a list of texts: a program and its arguments"
    program = next(iter(run["run_on_complete_command"]), "")
    if "/" in program and not program.startswith("/"):
        return f"run_on_complete_command {program!r} is a relative path, and it is run elsewhere"
    webhook = run["run_on_complete_webhook"]
    if webhook and not webhook.startswith(("http://", "https://")):
        return "run_on_complete_webhook is not an http(s) address"
    return ""
