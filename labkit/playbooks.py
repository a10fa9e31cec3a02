"""HOST: the only place that starts Ansible."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.config import REPO, Lab
from labkit.errors import NOT_READY, UNREACHABLE, LabError


@dataclass
class Outcome:
    """What a playbook did. changed: tasks that changed something. results: task name to its result."""

    changed: int = 0
    results: dict[str, dict[str, Any]] = field(default_factory=dict)


def run(
    playbook: str, lab: Lab, on_task: Callable[[str], None] = lambda _name: None, **variables: Any
) -> Outcome:
    """Run playbooks/<playbook>.yml on the lab.

    on_task is told each task's name as it starts. variables are added to the inventory's.
    Raises LabError with the failing task and its words: unreachable for the guest, else not ready.
    """
    import ansible_runner

    outcome, failures = Outcome(), []

    def listen(event: dict[str, Any]) -> bool:
        data = event.get("event_data", {})
        kind = event["event"]
        if kind == "playbook_on_task_start":
            on_task(data["name"])
        elif kind == "runner_on_ok":
            outcome.results[data["task"]] = data["res"]
            outcome.changed += bool(data["res"].get("changed"))
        elif kind in ("runner_on_failed", "runner_on_unreachable") and not data.get("ignore_errors"):
            failures.append((kind, data["task"], data["res"]))
        return False

    workplace = Path(tempfile.mkdtemp(prefix="lab-ansible-"))
    try:
        done = ansible_runner.run(
            private_data_dir=str(workplace),
            project_dir=str(REPO),
            playbook=f"playbooks/{playbook}.yml",
            inventory=str(lab.inventory / "hosts.yml"),
            extravars={**lab.variables, **variables},
            envvars=_environment(),
            event_handler=listen,
            quiet=True,
            suppress_env_files=True,
            rotate_artifacts=1,
        )
        if done.status != "successful":
            talk = done.stdout.read() if hasattr(done.stdout, "read") else ""
            raise _failure(playbook, failures, talk)
    finally:
        shutil.rmtree(workplace, ignore_errors=True)
    return outcome


def _environment() -> dict[str, str]:
    """Mitogen where it loads (10 times faster on an emulated guest), linear with pipelining elsewhere."""
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "ANSIBLE_CONFIG": str(REPO / "ansible.cfg"),
        "PYTHONPATH": str(REPO),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_LOCALHOST_WARNING": "0",
    }
    mitogen = importlib.util.find_spec("ansible_mitogen")
    if mitogen is not None and mitogen.origin and os.environ.get("LAB_MITOGEN", "1") != "0":
        environment["ANSIBLE_STRATEGY_PLUGINS"] = str(Path(mitogen.origin).parent / "plugins" / "strategy")
        environment["ANSIBLE_STRATEGY"] = "mitogen_linear"
    return environment


def _failure(playbook: str, failures: list[tuple[str, str, dict[str, Any]]], talk: str) -> LabError:
    if not failures:
        tail = " ".join(talk.split()[-60:]) or "no reason given"
        return LabError(f"the playbook {playbook} failed: {tail}", "`lab doctor` checks this machine")
    kind, task, result = failures[0]
    words = [str(result.get(key, "")).strip() for key in ("msg", "stderr", "stdout")]
    reason = "; ".join(dict.fromkeys(word for word in words if word))[-1500:]
    if kind == "runner_on_unreachable":
        return LabError(
            f"the guest does not answer (task: {task}): {reason}",
            "`lab status` shows its state; its console log is in the lab's folder",
            UNREACHABLE,
        )
    return LabError(f"{task}: {reason or 'failed'}", f"the playbook {playbook} stopped there", NOT_READY)
