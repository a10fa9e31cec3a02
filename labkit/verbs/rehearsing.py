"""HOST: the verb that needs neither guest nor money: `lab simulate`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from labkit.errors import USAGE, LabError
from labkit.verbs.shared import PROMPT_HELP, SESSION, Inventory, Json, app, out


@app.command(rich_help_panel=SESSION)
def simulate(
    inventory: Inventory = None,
    hours: Annotated[float | None, typer.Option(help="Simulated length; default: run_minutes.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same session.")] = 0,
    provider: Annotated[
        str, typer.Option(help="A shipped provider script (`list` names them), or a file.")
    ] = ("honest"),
    replay: Annotated[
        str | None, typer.Option(help="Play a recorded run: its run.db, its run_id, or `last`.")
    ] = None,
    budget: Annotated[float | None, typer.Option(help="Dollars, hard limit.")] = None,
    task: Annotated[Path | None, typer.Option(help="A file with the Worker's task.")] = None,
    prompt: Annotated[Path | None, typer.Option(help=PROMPT_HELP)] = None,
    keep: Annotated[Path | None, typer.Option(help="A new folder for the record and the workspace.")] = None,
    json: Json = False,
) -> None:
    """Run a whole session in seconds against a scripted provider: no guest, no root, no money."""
    from labkit.simulation import verb

    if provider == "list":
        known = verb.scripts()
        out(known, json, "\n".join(f"{name:9} {about}" for name, about in known.items()))
        return
    if keep is not None:
        _demand_room_for(keep)
    wanted = verb.Wanted(inventory, hours, seed, provider, replay, budget, task, prompt, keep)
    result = verb.run(wanted)
    out(result.as_dict(), json, verb.sentences(result, keep))


def _demand_room_for(keep: Path) -> None:
    """A folder that can't be made is said before the session, which would be lost."""
    folder = keep.absolute().parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise LabError(
            f"no folder {keep} can be made: {folder} can't be written", "name another place", USAGE
        )
