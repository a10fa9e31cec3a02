"""HOST: the command line: parses, calls, prints. Data on standard output, talk on standard error."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from labkit import config, runs
from labkit.analysis import load, terminal
from labkit.analysis.text import harmless
from labkit.errors import LIMIT, NOT_READY, OK, UNREACHABLE, USAGE, LabError

# hypervisor verbs import their parts when they are called: the analysis runs where libvirt is not

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    pretty_exceptions_enable=False,
    help="Leave two language-model agents alone in a disposable virtual machine, and see what happened.",
)
Json = Annotated[bool, typer.Option("--json", help="Print data as JSON.")]
Inventory = Annotated[Path | None, typer.Option(help="Another inventory folder (or LAB_INVENTORY).")]
Discard = Annotated[bool, typer.Option("--discard", help="Throw an uncollected run away.")]
RunName = Annotated[str, typer.Option("--run", help="A run_id, its beginning, or `last`.")]
INTERRUPTED = 130
LIMIT_REASONS = ("budget exhausted", "disk limit reached", "wall limit reached", "model unreachable")


def out(data: Any, as_json: bool, text: str = "") -> None:
    """Print data: JSON when asked, otherwise a line for a person."""
    if as_json:
        typer.echo(json.dumps(data, indent=1, sort_keys=True, default=str))
    elif text:
        typer.echo(harmless(text))


def _lab(inventory: Path | None, why: str, libvirt: bool = True) -> config.Lab:
    """The lab, as root, with libvirt running."""
    from labkit import host

    lab = config.load(inventory)
    host.become_root(lab, why)
    if libvirt:
        host.ensure_libvirt()
    return lab


def _alone(lab: config.Lab, verb: str) -> contextlib.AbstractContextManager[None]:
    """No other verb that changes this lab while this one does."""
    from labkit import lock

    return lock.hold(lab.state_dir, lab.name, verb)


@app.command()
def doctor(
    inventory: Inventory = None,
    online: Annotated[
        bool, typer.Option("--online", help="Also ask the provider: one small paid call a model.")
    ] = False,
    json: Json = False,
) -> None:
    """Is this machine ready, and if not, what to type."""
    from labkit import doctor as checks

    lab = _lab(inventory, "looking at libvirt", libvirt=False)
    findings = checks.examine(lab, online)
    if json:
        out([vars(finding) for finding in findings], True)
    else:
        Console().print(_findings_table(findings))
    if any(finding.state == "fail" for finding in findings):
        raise typer.Exit(NOT_READY)


def _findings_table(findings: list[Any]) -> Table:
    table = Table("check", "state", "detail", "what to type", box=None)
    colours = {"ok": "green", "warn": "yellow", "fail": "red"}
    for finding in findings:
        state = f"[{colours[finding.state]}]{finding.state}[/]"
        table.add_row(finding.check, state, escape(finding.detail), escape(finding.cure))
    return table


@app.command()
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
    lab = _lab(inventory, "looking at the guest" if check else "building the guest", libvirt=not check)
    if check:
        expected = prediction.of(lab)
        out(expected.as_dict(), json, expected.text())
        return
    with _alone(lab, "up"):
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


@app.command()
def run(
    inventory: Inventory = None,
    minutes: Annotated[float | None, typer.Option(help="Length of the session.")] = None,
    budget: Annotated[float | None, typer.Option(help="Dollars, hard limit.")] = None,
    model: Annotated[str | None, typer.Option(help="The Worker's model; `rehearsal` needs no key.")] = None,
    inspector_model: Annotated[str | None, typer.Option(help="The Inspector's; default: the same.")] = None,
    task: Annotated[
        Path | None, typer.Option(help="A file with the Worker's task; default: its own choice.")
    ] = None,
    prompt: Annotated[
        Path | None, typer.Option(help="A file in place of the Worker's prompt; default: the shipped one.")
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
        _refuse_with_resume(minutes, budget, model, inspector_model, task, prompt, keep, discard)
        _resume(inventory, resume, detach, json)
        return
    wanted = plan.make(lab, minutes, budget, model, inspector_model, task, prompt)
    lab = _lab(inventory, "starting a session")
    with _alone(lab, "run"):
        session.refuse_uncollected(lab, discard)
        provision.refuse_stale(lab)
        drift.refuse(session.place(lab))
        progress = Progress()
        asked = lookahead.look_ahead(lab, wanted, progress, check=not no_preflight)
        folder = session.begin(lab, wanted, keep, progress, {"typed": sys.argv[1:], **asked})
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

    lab = _lab(inventory, "going on with a session")
    with _alone(lab, "run"):
        folder = resuming.resume(lab, which, Progress())
    if detach:
        out({"run": folder.name}, as_json, f"run {folder.name} goes on; `lab watch` shows it")
        return
    _watch(lab, folder, as_json)


@app.command()
def watch(inventory: Inventory = None, json: Json = False) -> None:
    """Show the run that is in the guest, live."""
    from labkit import session

    lab = _lab(inventory, "watching the run")
    _watch(lab, session.watchable(lab), json)


def _watch(lab: config.Lab, folder: Path, as_json: bool) -> None:
    from labkit import presence
    from labkit.gateway import commands
    from labkit.watch import watch as show

    outcome = show(
        folder,
        on_interrupt=lambda: commands.append(folder, "finish"),
        console=Console(stderr=True),
        guest_gone=presence.Watcher(lab.name).word,
    )
    if outcome.how == "sealed":
        summary = outcome.summary or {}
        reason = summary.get("stop_reason", "unknown")
        out(summary, as_json, f"run {folder.name} is sealed ({reason}); `lab collect` brings it to runs/")
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


@app.command()
def finish(inventory: Inventory = None, json: Json = False) -> None:
    """Ask the session to write its report and end."""
    from labkit import session
    from labkit.gateway import commands

    folder = session.watchable(_lab(inventory, "asking the session to finish", libvirt=False))
    number = commands.append(folder, "finish")
    out({"run": folder.name, "command": number}, json, f"asked run {folder.name} to finish")


@app.command()
def status(inventory: Inventory = None, json: Json = False) -> None:
    """What exists and what runs, now."""
    from labkit import status as truth

    known = truth.describe(_lab(inventory, "asking libvirt", libvirt=False))
    out(known, json, truth.sentence(known))


@app.command()
def collect(
    inventory: Inventory = None,
    stop: Annotated[bool, typer.Option("--stop", help="Stop a session that still runs.")] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Switch the guest off and read its disks, though it may answer.")
    ] = False,
    json: Json = False,
) -> None:
    """Bring the run that is in the guest to runs/<run_id>; from a dead guest, off its disks."""
    from labkit import collecting, session
    from labkit.progress import Progress

    lab = _lab(inventory, "collecting the run")
    folder = session.current(lab)
    progress = Progress()
    with _alone(lab, "collect"), progress.step(f"collecting run {folder.name}"):
        target = collecting.collect(lab, folder, stop, offline, progress.detail, progress.say)
    out({"run": folder.name, "folder": str(target)}, json, f"run {folder.name} is in {target}")


@app.command()
def revert(inventory: Inventory = None, discard: Discard = False, json: Json = False) -> None:
    """Go back to the snapshot, with a receipt; the guest is off afterwards."""
    from labkit import reverting

    lab = _lab(inventory, "reverting the guest")
    with _alone(lab, "revert"):
        receipt = reverting.revert(lab, discard)
    out(receipt.as_dict(), json, receipt.line())


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def ssh(
    inventory: Inventory = None,
    command: Annotated[list[str] | None, typer.Argument(help="A command; default: a shell.")] = None,
) -> None:
    """Open a root shell in the guest, or run one command there."""
    from labkit import presence

    lab = _lab(inventory, "opening a shell in the guest")
    keys = lab.keys_dir
    if not (keys / "id_ed25519").is_file():
        raise LabError(f"there is no guest named '{lab.name}'", "`lab up` builds it")
    presence.demand_running(lab, "no shell opens in it")
    options = ["-o", f"UserKnownHostsFile={keys}/known_hosts", "-o", "StrictHostKeyChecking=yes"]
    options += ["-o", "ConnectTimeout=10", "-o", "LogLevel=ERROR", "-o", "IdentitiesOnly=yes"]
    os.execvp(
        "ssh", ["ssh", "-i", str(keys / "id_ed25519"), *options, f"root@{lab.address}", *(command or [])]
    )


@app.command()
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
        raise LabError("a collected run has its last generation only", "leave --generation out", USAGE)
    wanted = "" if list_them else backups.wanted_path(path)
    target = None if list_them else backups.destination(wanted, to)
    if run:
        backups.from_run(runs.find(run), wanted, target)
        out({"path": wanted, "to": str(target)}, json, f"{wanted} is in {target}")
        return
    lab = _lab(inventory, "reading the guest's backups")
    with _alone(lab, "restore"), backups.source(lab) as guest:
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


@app.command()
def gc(
    yes: Annotated[bool, typer.Option("--yes", help="Remove what is listed.")] = False,
    inventory: Inventory = None,
    json: Json = False,
) -> None:
    """Show what no lab needs any more: old images, archives, leftovers; --yes removes it."""
    from labkit import gc as rubbish

    lab = _lab(inventory, "looking through the lab's folders", libvirt=False)
    find = rubbish.free if yes else rubbish.find
    found = find(lab.state_dir, runs.default_root().resolve())
    lines = [f"{rubbish.spoken(one.bytes):>10}  {one.kind}: {one.path} ({one.why})" for one in found]
    total = rubbish.spoken(sum(one.bytes for one in found))
    lines.append(f"{total} freed" if yes else f"{total}; `lab gc --yes` removes it")
    data = {"freed": yes, "bytes": sum(one.bytes for one in found), "things": [vars(one) for one in found]}
    out(data, json, "\n".join(lines) if found else "there is nothing that could go")


@app.command()
def down(inventory: Inventory = None, discard: Discard = False, json: Json = False) -> None:
    """Remove what `up` made. Images and collected runs stay."""
    from labkit import provision
    from labkit.progress import Progress

    lab = _lab(inventory, "removing the guest")
    with _alone(lab, "down"):
        removed = provision.down(lab, Progress(), discard)
    out(
        {"removed": removed},
        json,
        f"removed: {', '.join(removed)}" if removed else "there was nothing to remove",
    )


@app.command(name="runs")
def list_runs(json: Json = False) -> None:
    """The collected runs."""
    known = runs.list_runs()
    if json:
        out([{**vars(info)} for info in known], True)
        return
    table = Table("run", "minutes", "steps", "ended by", "dollars", "whole", box=None)
    for info in known:
        cost = "" if info.cost_usd is None else f"{info.cost_usd:.4f}"
        minutes = "" if info.minutes is None else f"{info.minutes:.1f}"
        table.add_row(
            escape(info.run_id),
            minutes,
            str(info.steps or ""),
            info.stop_reason if info.sealed else f"{info.stop_reason}, not sealed",
            cost,
            "yes" if info.complete else "no",
        )
    Console().print(table if known else "no runs yet: `lab run`, then `lab collect`")


@app.command()
def query(
    question: Annotated[str, typer.Argument(help="A named question (`list` names them) or SQL.")],
    run: RunName = "last",
    json: Json = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """Ask a collected run, read-only."""
    folder = Path() if question.strip() == "list" else runs.find(run)  # the names need no run
    result = load.query(folder, question)
    if json:
        terminal.write_json(result, sys.stdout)
    elif csv:
        try:
            terminal.write_csv(result, sys.stdout)
            sys.stdout.flush()
        except BrokenPipeError:  # `| head` has enough: no error, and typer would make it one
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    else:
        terminal.show(result, Console())


@app.command()
def demo(inventory: Inventory = None) -> None:
    """Everything once: doctor, up, a 3-minute rehearsal, collect, the seven answers, revert."""
    from labkit import demo as tour

    lab = _lab(inventory, "the demo")
    with _alone(lab, "demo"):
        tour.run(lab)


def _os_sentence(error: OSError) -> str:
    where = f": {error.filename}" if error.filename else ""
    if error.errno == errno.ENOSPC:
        return f"a disk of this host is full{where}\n     `df -h` shows which; free some, then repeat"
    return f"{error.strerror or error}{where}\n     mend that, then repeat"


def main() -> None:
    """The entry point: one way to fail, with one sentence and an exit code."""
    try:
        app(prog_name="lab")
    except LabError as error:
        # A guest's words may be in it: nothing of them reaches the terminal unfiltered.
        print(harmless(f"lab: {error}"), file=sys.stderr)
        sys.exit(error.code)
    except BrokenPipeError:  # `lab query ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(OK)
    except OSError as error:
        print(harmless(f"lab: {_os_sentence(error)}"), file=sys.stderr)
        sys.exit(NOT_READY)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:  # typer turns Ctrl-C into an exit without a word
            print("lab: interrupted\n     `lab status` shows what exists", file=sys.stderr)
        raise


if __name__ == "__main__":
    main()
