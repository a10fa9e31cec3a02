"""HOST: `lab network`: switches the guest's network live and tells the session that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from labkit import asking, network_gate, state
from labkit.config import Lab
from labkit.gateway import network as kept
from labkit.gateway.events import EventTail, run_summary
from labkit.guest import Hypervisor
from labkit.plan import demand_network

TOLD = {
    network_gate.OPEN: "The network of your machine has been opened: the internet can be reached from it.",
    network_gate.SEALED: "The network of your machine has been sealed: it reaches the model's gateway alone.",
}


def network(lab: Lab, mode: str | None, why: str) -> dict[str, Any]:
    """Switch (None: only look). Returns {"network", "changed", "told": a run_id or None, "text"}.

    A session that runs is told, which the text says; its record and network.jsonl keep by whom and why.
    Raises LabError: no such mode, no guest, or a host that can't seal.
    """
    if mode is not None:
        demand_network(mode)
    with Hypervisor() as hypervisor:
        hypervisor.known(lab.name)
        found = network_gate.mode_now(lab, hypervisor)
    if mode is None:
        return {"network": found, "changed": False, "told": None, "text": f"the network is {found}"}
    changed = network_gate.switch(lab, mode)
    told, message = _tell(lab, mode, why) if changed else (None, "")
    said = f"the network is {mode}" + (message if changed else " already")
    if told is None and mode == network_gate.SEALED:
        said += "; the next revert opens it, and a run begins as `--network` or run_network says"
    return {"network": mode, "changed": changed, "told": told, "text": said}


def _tell(lab: Lab, mode: str, why: str) -> tuple[str | None, str]:
    """Say it to the session that runs; its run_id, and that it is told. (None, "") where none runs."""
    known = state.read(lab.dir)
    run_id = known.get("run")
    folder: Path = lab.gateway_dir / str(run_id)
    if not run_id or known.get("collected") or run_summary(EventTail(folder).rows()):
        return None, ""
    kept.note(folder, mode, asking.who(), why)
    asked = asking.ask(folder, "say", {"text": TOLD[mode]}, why or f"lab network {mode}", seconds=0)
    when = f"the Worker of run {run_id} is told before its next step (command {asked['command']})"
    return run_id, f'; {when}: "{TOLD[mode]}"'
