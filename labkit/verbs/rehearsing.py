"""HOST: the verb that needs neither guest nor money: `lab simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
    wanted = verb.Wanted(inventory, hours, seed, provider, replay, budget, task, prompt, keep)
    result = verb.run(wanted)
    out(result.as_dict(), json, verb.sentences(result, keep))
