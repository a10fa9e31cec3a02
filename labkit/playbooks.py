"""HOST: the only place that starts Ansible."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit import leftovers
from labkit.config import REPO, Lab
from labkit.errors import NOT_READY, UNREACHABLE, LabError

SETTINGS = {"pexpect_timeout": 1}  # seconds until a Ctrl-C is noticed


@dataclass
class Outcome:
    """What a playbook did. changed: tasks that changed something. results: task name to its result.

    changed_tasks: the names of those tasks, in their order.
    """

    changed: int = 0
    changed_tasks: list[str] = field(default_factory=list)
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
    interrupts: list[int] = []

    def listen(event: dict[str, Any]) -> bool:
        data = event.get("event_data", {})
        kind = event["event"]
        if kind == "playbook_on_task_start":
            on_task(data["name"])
        elif kind == "runner_on_ok":
            outcome.results[data["task"]] = data["res"]
            if data["res"].get("changed"):
                outcome.changed += 1
                outcome.changed_tasks.append(data["task"])
        elif kind in ("runner_on_failed", "runner_on_unreachable") and not data.get("ignore_errors"):
            failures.append((kind, data["task"], data["res"]))
        return False

    workplace = Path(tempfile.mkdtemp(prefix="lab-ansible-"))
    try:
        _write_env(workplace, {"extravars": {**lab.variables, **variables}, "settings": SETTINGS})
        with _interruptible(interrupts):
            done = ansible_runner.run(
                private_data_dir=str(workplace),
                project_dir=str(REPO),
                playbook=f"playbooks/{playbook}.yml",
                inventory=str(lab.inventory / "hosts.yml"),
                envvars=_environment() | leftovers.mark(lab.dir),
                event_handler=listen,
                quiet=True,
                suppress_env_files=True,
                rotate_artifacts=1,
                cancel_callback=lambda: bool(interrupts),
            )
        if interrupts:
            leftovers.end(lab.dir)
            raise KeyboardInterrupt
        if done.status != "successful":
            talk = done.stdout.read() if hasattr(done.stdout, "read") else ""
            raise _failure(playbook, failures, talk)
    finally:
        shutil.rmtree(workplace, ignore_errors=True)
    return outcome


def _write_env(workplace: Path, files: dict[str, dict[str, Any]]) -> None:
    """What the runner reads from private files: given as arguments, the token is on a command line for all to
    read, and settings are ignored."""
    folder = workplace / "env"
    folder.mkdir(mode=0o700)
    for name, values in files.items():
        (folder / name).touch(mode=0o600)
        (folder / name).write_text(json.dumps(values))


@contextlib.contextmanager
def _interruptible(seen: list[int]) -> Iterator[None]:
    """Ctrl-C, SIGTERM and a closed terminal as a list that grows.

    The runner's own handler would stay, and swallow each later Ctrl-C. What nohup ignores stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    before = {number: handler for number, handler in before.items() if handler != signal.SIG_IGN}
    for number in before:
        signal.signal(number, lambda received, _frame: seen.append(received))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _environment() -> dict[str, str]:
    """Mitogen where it loads (twice as fast on an emulated guest), linear with pipelining elsewhere."""
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
        "ANSIBLE_CONFIG": str(REPO / "ansible.cfg"),
        "PYTHONPATH": str(REPO),
        # Ansible refuses a locale that this host does not have, such as the one ssh brought along.
        "LC_ALL": "C.UTF-8",
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
    kind, task, result = failures[-1]  # earlier ones were rescued
    failed_items = [item for item in result.get("results", ()) if item.get("failed")]
    result = failed_items[0] if failed_items else result
    stopped = f"the playbook {playbook} stopped there; mend it, then repeat"
    if "No space left on device" in str(result):
        stopped = "a disk is full: `df -h` shows which; free some, then repeat"
    message, cure_follows, cure = str(result.get("msg", "")).partition("\n     ")
    if "lab_code" in result or cure_follows:  # a sentence of ours, in the form of LabError
        return LabError(message, cure.strip() or stopped, int(result.get("lab_code", NOT_READY)))
    words = [str(result.get(key, "")).strip() for key in ("msg", "stderr", "stdout")]
    reason = "; ".join(dict.fromkeys(word for word in words if word))[-1500:]
    if kind == "runner_on_unreachable":
        return LabError(
            f"the guest does not answer (task: {task}): {reason}",
            "`lab status` shows its state; its console log is in the lab's folder",
            UNREACHABLE,
        )
    return LabError(f"{task}: {reason or 'failed'}", stopped, NOT_READY)
