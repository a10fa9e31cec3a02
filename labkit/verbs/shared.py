"""HOST: what all verbs share: the app they register with, the options they have in common, printing."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from labkit import config
from labkit.analysis.text import harmless
from labkit.errors import USAGE, LabError
from labkit.progress import fitted, hush

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
RunName = Annotated[str, typer.Option("--run", help="A run_id, its beginning, `last`, or a folder.")]
PROMPT_HELP = (
    "A file in place of the Worker's prompt; default: the shipped one. The task stands where {{task}} is: "
    "without that blank a task is refused."
)
GUEST, SESSION, RECORD = "The guest", "A session", "Collected runs"  # the panels of `lab --help`


def out(data: Any, as_json: bool, text: str = "") -> None:
    """Print data: JSON when asked, otherwise a line for a person."""
    if as_json:
        text = json.dumps(data, indent=1, sort_keys=True, default=str)
    else:
        text = fitted(harmless(text), sys.stdout)
    if not text:
        return
    with to_whom_it_may_concern():
        typer.echo(text)


@contextlib.contextmanager
def to_whom_it_may_concern() -> Iterator[None]:
    """`lab query ... | head` has enough: that is no error of what was printed, and changes no exit code."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        hush(sys.stdout)


def demand_text(typed: object) -> None:
    """LabError (usage) for what a terminal of another encoding made of a text: no record could hold it."""
    try:
        str(typed).encode()
    except UnicodeEncodeError as error:
        hint = "type it in a terminal that is set to UTF-8 (`locale` shows it)"
        raise LabError(f"{typed!r} is not text in UTF-8", hint, USAGE) from error


def open_lab(inventory: Path | None, why: str, libvirt: bool = True) -> config.Lab:
    """The lab, as root, with libvirt running."""
    from labkit import host

    lab = config.load(inventory)
    host.become_root(lab, why)
    if libvirt:
        host.ensure_libvirt()
    return lab


@contextlib.contextmanager
def alone(lab: config.Lab, verb: str) -> Iterator[None]:
    """No other verb that changes this lab while this one does."""
    from labkit import leftovers, lock
    from labkit.progress import warn

    with lock.hold(lab.state_dir, lab.name, verb):
        if ended := leftovers.end(lab.dir):
            warn(f"lab: ended {ended} processes that an earlier command, which was killed, left at work")
        yield
