"""HOST: the verbs of a session: it starts, is watched, is brought home."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from labkit import config
from labkit.analysis.text import one_line
from labkit.errors import LIMIT, OK, UNREACHABLE, USAGE, LabError
from labkit.verbs.shared import PROMPT_HELP, SESSION, Discard, Inventory, Json, alone, app, open_lab, out

LIMIT_REASONS = ("budget exhausted", "disk limit reached", "wall limit reached", "model unreachable")


@app.command(rich_help_panel=SESSION)
def run(
    inventory: Inventory = None,
    minutes: Annotated[float | None, typer.Option(help="Length of the session.")] = None,
    budget: Annotated[float | None, typer.Option(help="Dollars, hard limit.")] = None,
    model: Annotated[str | None, typer.Option(help="The Worker's model; `rehearsal` needs no key.")] = None,
    inspector_model: Annotated[str | None, typer.Option(help="The Inspector's; default: the same.")] = None,
    task: Annotated[
        Path | None, typer.Option(help="A file with the Worker's task; default: its own choice.")
    ] = None,
    prompt: Annotated[Path | None, typer.Option(help=PROMPT_HELP)] = None,
    network: Annotated[
        str | None, typer.Option(help="`open`, or `sealed`: the guest reaches the gateway and nothing else.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Go on with the guest as it is, without a revert.")
    ] = False,
    discard: Discard = False,
    no_preflight: Annotated[
        bool, typer.Option("--no-preflight", help="Start without a paid call and a look at the disk before.")
    ] = False,
    resume: Annotated[
        str | None, typer.Option(help="Go on with this run after a crash: a run_id, or `last`.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return once the session has started.")] = False,
    json: Json = False,
) -> None:
    """Start an unattended session and watch it (q leaves, Ctrl-C asks it to finish)."""
    from labkit import drift, lookahead, plan, provision, session
    from labkit.progress import Progress

    lab = config.load(inventory)
    if resume is not None:
        _refuse_with_resume(minutes, budget, model, inspector_model, task, prompt, network, keep, discard)
        _resume(inventory, resume, detach, json)
        return
    wanted = plan.make(lab, minutes, budget, model, inspector_model, task, prompt, network)
    lab = open_lab(inventory, "starting a session")
    with alone(lab, "run"):
        session.refuse_uncollected(lab, discard)
        provision.refuse_stale(lab)
        drift.refuse(session.place(lab))
        progress = Progress()
        asked = lookahead.look_ahead(lab, wanted, progress, check=not no_preflight)
        folder = session.begin(lab, wanted, keep, progress, {"typed": sys.argv[1:], **asked})
    _say_page(folder)
    if detach:
        out({"run": wanted.run_id}, json, f"run {wanted.run_id} has started; `lab watch` shows it")
        return
    _watch(lab, folder, json)


def _refuse_with_resume(*options: object) -> None:
    if any(option not in (None, False) for option in options):
        raise LabError(
            "--resume goes on with a run as it was asked for: nothing of it can be changed",
            "leave the other options out (--detach may stay)",
            USAGE,
        )


def _resume(inventory: Path | None, which: str, detach: bool, as_json: bool) -> None:
    from labkit import resume as resuming
    from labkit.progress import Progress

    lab = open_lab(inventory, "going on with a session")
    with alone(lab, "run --resume"):
        folder = resuming.resume(lab, which, Progress())
    _say_page(folder)
    if detach:
        out({"run": folder.name}, as_json, f"run {folder.name} goes on; `lab watch` shows it")
        return
    _watch(lab, folder, as_json)


@app.command(rich_help_panel=SESSION)
def watch(
    inventory: Inventory = None,
    url: Annotated[
        bool, typer.Option("--url", help="Print the live page's address, its token included.")
    ] = False,
    json: Json = False,
) -> None:
    """Show the run that is in the guest, live."""
    from labkit import asking, session

    lab = open_lab(inventory, "watching the run", libvirt=not url)
    if url:
        link = asking.page_link(session.watchable(lab))
        out({"url": link}, json, link)
        return
    _watch(lab, session.watchable(lab), json)


def _say_page(folder: Path) -> None:
    from labkit.gateway.page import access
    from labkit.progress import warn

    if link := access.link(folder):
        warn(f"the live page: {link}")


def _watch(lab: config.Lab, folder: Path, as_json: bool) -> None:
    from labkit import asking, presence
    from labkit.gateway import commands
    from labkit.progress import Terminal
    from labkit.watch import watch as show

    why = "Ctrl-C at the live view"
    outcome = show(
        folder,
        on_interrupt=lambda: commands.append(folder, "finish", who=asking.who(), why=why),
        console=Terminal(stderr=True),
        guest_gone=presence.Watcher(lab.name).word,
    )
    if outcome.how == "sealed":
        summary = outcome.summary or {}
        reason = summary.get("stop_reason", "unknown")
        said = one_line(str(reason))
        out(summary, as_json, f"run {folder.name} is sealed ({said}); `lab collect` brings it to runs/")
        raise typer.Exit(LIMIT if reason in LIMIT_REASONS else OK)
    if outcome.how == "lost":
        raise LabError(
            f"the gateway of run {folder.name} is gone; the record so far is in {folder}",
            f"`lab run --resume {folder.name}` goes on with it, `lab collect --stop` saves what there is",
            UNREACHABLE,
        )
    if outcome.how == "guest":
        raise LabError(
            f"the guest '{lab.name}' is {outcome.word} in the middle of run {folder.name};"
            f" the record so far is in {folder}",
            "`lab status` says what to type",
            UNREACHABLE,
        )
    out({"run": folder.name, "how": "left"}, as_json, "the session goes on; `lab watch` shows it again")


@app.command(rich_help_panel=SESSION)
def collect(
    inventory: Inventory = None,
    stop: Annotated[
        bool, typer.Option("--stop", help="End a session that still runs, or could go on.")
    ] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Switch the guest off and read its disks, though it may answer.")
    ] = False,
    json: Json = False,
) -> None:
    """Bring the run that is in the guest to runs/<run_id>; from a dead guest, off its disks."""
    from labkit import collecting, session
    from labkit.progress import Progress

    lab = open_lab(inventory, "collecting the run")
    folder = session.current(lab)
    progress = Progress()
    with alone(lab, "collect"):
        before = collecting.collected_before(lab, folder)
        if before is None:
            with progress.step(f"collecting run {folder.name}"):
                if stop:
                    collecting.ask_to_stop(lab, folder, progress.say)
                target = collecting.collect(lab, folder, stop, offline, progress.detail, progress.say)
    if before is not None:
        data = {"run": folder.name, "folder": str(before), "collected_before": True}
        out(data, json, f"run {folder.name} was collected before: it is in {before}, and nothing was done")
        return
    data = {"run": folder.name, "folder": str(target), "collected_before": False}
    out(data, json, f"run {folder.name} is in {target}")


@app.command(rich_help_panel=SESSION)
def gateway(
    folder: Annotated[Path, typer.Argument(help="The run's folder, with its gateway.json.")],
) -> None:
    """Serve a run's gateway in the foreground; `lab run` and `lab run --resume` start it by themselves."""
    from labkit.gateway.server import serve

    serve(folder)


@app.command(rich_help_panel=SESSION)
def network(
    mode: Annotated[str | None, typer.Argument(help="`open`, `sealed`; default: only look.")] = None,
    inventory: Inventory = None,
    why: Annotated[str, typer.Option(help="The reason; it is kept in the record.")] = "",
    json: Json = False,
) -> None:
    """Show what the guest's network card may reach, or switch it, also while a session runs."""
    from labkit import switching

    lab = open_lab(inventory, "the guest's network")
    found = switching.network(lab, mode, why)
    out(found, json, found["text"])
