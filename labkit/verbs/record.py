"""HOST: the verbs over collected runs and backups; most need no root and no libvirt."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table
from rich.text import Text

from labkit import runs
from labkit.analysis import load, terminal
from labkit.analysis.text import one_line
from labkit.errors import EVIDENCE, USAGE, LabError
from labkit.progress import Terminal
from labkit.verbs.shared import (
    RECORD,
    Inventory,
    Json,
    RunName,
    alone,
    app,
    open_lab,
    out,
    to_whom_it_may_concern,
)


@app.command(name="runs", rich_help_panel=RECORD)
def list_runs(json: Json = False) -> None:
    """The collected runs."""
    known = runs.list_runs()
    if json:
        out([{**vars(info)} for info in known], True)
        return
    name = Column("run", no_wrap=True, overflow="fold")  # two may differ in their last character only
    table = Table(name, "minutes", "steps", "ended by", "dollars", "whole", box=None)
    for info in known:
        cost = "" if info.cost_usd is None else f"{info.cost_usd:.4f}"
        minutes = "" if info.minutes is None else f"{info.minutes:.1f}"
        table.add_row(
            Text(one_line(info.run_id)),
            minutes,
            str(info.steps or ""),
            info.stop_reason if info.sealed or info.damaged else f"{info.stop_reason}, not sealed",
            cost,
            "yes" if info.complete else "no",
        )
    Terminal().print(table if known else "no runs yet: `lab run`, then `lab collect`")


@app.command(rich_help_panel=RECORD)
def query(
    question: Annotated[str, typer.Argument(help="A named question (`list` names them) or SQL.")],
    run: RunName = "last",
    json: Json = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, every cell as it is.")] = False,
    csv_safe: Annotated[
        bool, typer.Option("--csv-safe", help="CSV for a spreadsheet: what looks like a formula gets a '.")
    ] = False,
) -> None:
    """Ask a collected run, read-only."""
    if json + csv + csv_safe > 1:
        raise LabError("--json, --csv and --csv-safe each print another form", "choose one of them", USAGE)
    folder = Path() if question.strip() == "list" else runs.find(run)  # the names need no run
    result = load.query(folder, question)
    with to_whom_it_may_concern():
        if json:
            terminal.write_json(result, sys.stdout)
        elif csv or csv_safe:
            terminal.write_csv(result, sys.stdout, for_spreadsheets=csv_safe)
        else:
            terminal.show(result, Terminal())


@app.command(rich_help_panel=RECORD)
def verify(
    run: Annotated[str, typer.Argument(help="A run_id, its beginning, `last`, or a folder.")] = "last",
    json: Json = False,
) -> None:
    """Is a collected run's record complete and untampered; exit code 6 when not."""
    from labkit.verification import verify as checks

    folder = runs.find(run)
    checks.refuse_a_simulation(folder)
    report = checks.examine(folder)
    out(report.as_dict(), json, checks.text(report))
    if not report.holds:
        raise typer.Exit(EVIDENCE)


@app.command(rich_help_panel=RECORD)
def restore(
    path: Annotated[str, typer.Argument(help="A file or folder, as it is named below the workspace.")] = "",
    generation: Annotated[int | None, typer.Option(help="Which backup; default: the newest.")] = None,
    to: Annotated[Path | None, typer.Option(help="Where it goes; default: ./restored-<name>.")] = None,
    run: Annotated[str, typer.Option("--run", help="From a collected run's backup: run_id or `last`.")] = "",
    list_them: Annotated[bool, typer.Option("--list", help="List the guest's generations.")] = False,
    inventory: Inventory = None,
    json: Json = False,
) -> None:
    """Bring a file or folder back from a backup generation; nothing is overwritten."""
    from labkit import restore as backups

    if run and (list_them or generation is not None):
        raise LabError(
            "a collected run has its last generation only", "leave --generation and --list out", USAGE
        )
    wanted = "" if list_them else backups.wanted_path(path)
    target = None if list_them else backups.destination(wanted, to)
    if run:
        backups.from_run(runs.find(run), wanted, target)
        out({"path": wanted, "to": str(target)}, json, f"{wanted} is in {target}")
        return
    lab = open_lab(inventory, "reading the guest's backups")
    with alone(lab, "restore"), backups.source(lab) as guest:
        if list_them:
            known = guest.generations()
            lines = "\n".join(f"{one.number:>6}  {one.made}" for one in known)
            out([vars(one) for one in known], json, lines or "there is no backup generation yet")
            return
        taken = backups.from_guest(guest, generation, wanted, target)
    out(
        {"path": wanted, "to": str(target), **vars(taken)},
        json,
        f"{wanted} of generation {taken.number} ({taken.made} UTC) is in {target}",
    )
