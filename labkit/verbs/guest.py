"""HOST: the verbs of the guest's life, from `doctor` to `down`."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from labkit import runs
from labkit.analysis.text import harmless
from labkit.errors import NOT_READY, USAGE, LabError
from labkit.progress import Terminal
from labkit.verbs.shared import GUEST, Discard, Inventory, Json, alone, app, open_lab, out


@app.command(rich_help_panel=GUEST)
def doctor(
    inventory: Inventory = None,
    online: Annotated[
        bool, typer.Option("--online", help="Also ask the provider: one small paid call a model.")
    ] = False,
    json: Json = False,
) -> None:
    """Is this machine ready, and if not, what to type."""
    from labkit import doctor as checks

    lab = open_lab(inventory, "looking at libvirt", libvirt=False)
    findings = checks.examine(lab, online)
    if json:
        out([vars(finding) for finding in findings], True)
    else:
        Terminal().print(_findings_table(findings))
    if any(finding.state == "fail" for finding in findings):
        raise typer.Exit(NOT_READY)


def _findings_table(findings: list[Any]) -> Table:
    """A row a check; what to type stands below what was found, where a line has room for it."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    colours = {"ok": "green", "warn": "yellow", "fail": "red"}
    for finding in findings:
        detail = Text(harmless(finding.detail))
        if finding.cure:
            detail.append(f"\n-> {harmless(finding.cure)}", style="bold")
        table.add_row(finding.check, Text(finding.state, style=colours[finding.state]), detail)
    return table


@app.command(rich_help_panel=GUEST)
def up(
    inventory: Inventory = None,
    discard: Discard = False,
    check: Annotated[
        bool, typer.Option("--check", help="Say what it would do and why; change nothing.")
    ] = False,
    converge: Annotated[
        bool, typer.Option("--converge", help="Prove that applying the safeguards again changes nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Build the guest with its safeguards and take a verified snapshot."""
    from labkit import prediction, provision
    from labkit.progress import Progress

    if check and converge:
        raise LabError("--check changes nothing, --converge boots the guest", "choose one of them", USAGE)
    lab = open_lab(inventory, "looking at the guest" if check else "building the guest", libvirt=not check)
    if check:
        expected = prediction.from_outside(lab)
        out(expected.as_dict(), json, expected.text())
        return
    with alone(lab, "up"):
        if converge:
            proof = provision.prove(lab, Progress(), discard)
            out(proof, json, f"applying the safeguards again changed {proof['changed']} tasks")
            provision.demand_unchanged(proof)
            return
        done = provision.up(lab, Progress(), discard)
    taken = done["snapshot"]["taken_at"]
    text = {
        prediction.NOTHING: f"nothing to do: the snapshot of {taken} is what the inventory asks for",
        prediction.REDEFINE: f"guest and network are defined as before; the snapshot of {taken} stays",
    }
    otherwise = f"the guest '{lab.name}' is ready; snapshot of {taken}, verified"
    out(done, json, text.get(done["did"], otherwise))


@app.command(rich_help_panel=GUEST)
def status(inventory: Inventory = None, json: Json = False) -> None:
    """What exists and what runs, now."""
    from labkit import advice
    from labkit import status as truth

    known = truth.describe(open_lab(inventory, "asking libvirt", libvirt=False))
    out(known, json, advice.sentence(known))


@app.command(rich_help_panel=GUEST)
def revert(inventory: Inventory = None, discard: Discard = False, json: Json = False) -> None:
    """Go back to the snapshot, with a receipt; the guest is off afterwards."""
    from labkit import reverting

    lab = open_lab(inventory, "reverting the guest")
    with alone(lab, "revert"):
        receipt = reverting.revert(lab, discard)
    out(receipt.as_dict(), json, receipt.line())


@app.command(
    rich_help_panel=GUEST,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
def ssh(
    inventory: Inventory = None,
    command: Annotated[list[str] | None, typer.Argument(help="A command; default: a shell.")] = None,
) -> None:
    """Open a root shell in the guest, or run one command there."""
    from labkit import presence

    lab = open_lab(inventory, "opening a shell in the guest")
    keys = lab.keys_dir
    if not (keys / "id_ed25519").is_file():
        raise LabError(f"there is no guest named '{lab.name}'", "`lab up` builds it")
    presence.demand_running(lab, "no shell opens in it")
    presence.demand_sshd(lab)
    options = ["-o", f"UserKnownHostsFile={keys}/known_hosts", "-o", "StrictHostKeyChecking=yes"]
    options += ["-o", "ConnectTimeout=10", "-o", "LogLevel=ERROR", "-o", "IdentitiesOnly=yes"]
    os.execvp(
        "ssh", ["ssh", "-i", str(keys / "id_ed25519"), *options, f"root@{lab.address}", *(command or [])]
    )


@app.command(rich_help_panel=GUEST)
def gc(
    yes: Annotated[bool, typer.Option("--yes", help="Remove what is listed.")] = False,
    inventory: Inventory = None,
    json: Json = False,
) -> None:
    """Show what no lab needs any more: old images, archives, leftovers; --yes removes it."""
    from labkit import gc as rubbish
    from labkit.simulation import sandbox

    lab = open_lab(inventory, "looking through the lab's folders", libvirt=False)
    find = rubbish.free if yes else rubbish.find
    found = find(lab.state_dir, runs.default_root().resolve(), sandbox.places())
    lines = [f"{rubbish.spoken(one.bytes):>10}  {one.kind}: {one.path} ({one.why})" for one in found]
    total = rubbish.spoken(sum(one.bytes for one in found))
    lines.append(f"{total} freed" if yes else f"{total}; `lab gc --yes` removes it")
    data = {"freed": yes, "bytes": sum(one.bytes for one in found), "things": [vars(one) for one in found]}
    out(data, json, "\n".join(lines) if found else "there is nothing that could go")


@app.command(rich_help_panel=GUEST)
def down(inventory: Inventory = None, discard: Discard = False, json: Json = False) -> None:
    """Remove what `up` made. Images and collected runs stay."""
    from labkit import provision
    from labkit.progress import Progress

    lab = open_lab(inventory, "removing the guest")
    with alone(lab, "down"):
        removed = provision.down(lab, Progress(), discard)
    out(
        {"removed": removed},
        json,
        f"removed: {', '.join(removed)}" if removed else "there was nothing to remove",
    )


@app.command(rich_help_panel=GUEST)
def demo(inventory: Inventory = None) -> None:
    """Everything once: doctor, up, a 3-minute rehearsal, collect, the seven answers, revert."""
    from labkit import demo as tour

    lab = open_lab(inventory, "the demo")
    with alone(lab, "demo"):
        tour.run(lab)
