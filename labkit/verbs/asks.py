"""HOST: the verbs by which a person speaks to a running session; labkit/asking.py carries them out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from labkit.verbs.shared import SESSION, Inventory, Json, app, demand_text, open_lab, out

Why = Annotated[str, typer.Option(help="The reason; it is kept in the record.")]


def _ask(inventory: Path | None, name: str, args: dict | None, why: str, json: bool, doing: str) -> None:
    from labkit import asking, session
    from labkit.gateway import command_rules

    for text in (why, *(args or {}).values()):
        demand_text(text)
    command_rules.checked(name, args or {})  # a slip is said before anything else is looked at
    folder = session.watchable(open_lab(inventory, doing, libvirt=False))
    asked = asking.ask(folder, name, args, why)
    text = asked.pop("text")
    out(asked, json, text)


@app.command(rich_help_panel=SESSION)
def pause(inventory: Inventory = None, why: Why = "", json: Json = False) -> None:
    """Hold the session between two steps; the time is not charged (the wall limit goes on)."""
    _ask(inventory, "pause", None, why, json, "pausing the session")


@app.command(rich_help_panel=SESSION)
def unpause(inventory: Inventory = None, why: Why = "", json: Json = False) -> None:
    """Let a paused session go on."""
    _ask(inventory, "unpause", None, why, json, "letting the session go on")


@app.command(rich_help_panel=SESSION)
def say(
    text: Annotated[str, typer.Argument(help="What the Worker is told, as a message from you.")],
    inventory: Inventory = None,
    why: Why = "",
    json: Json = False,
) -> None:
    """Tell the Worker something before its next step."""
    _ask(inventory, "say", {"text": text}, why, json, "speaking to the session")


@app.command(rich_help_panel=SESSION)
def extend(
    minutes: Annotated[float | None, typer.Option(help="So many minutes more.")] = None,
    budget: Annotated[float | None, typer.Option(help="So many dollars more.")] = None,
    inventory: Inventory = None,
    why: Why = "",
    json: Json = False,
) -> None:
    """Give the session more time or more money; the gateway's cap rises with it."""
    given = {"minutes": minutes, "budget_usd": budget}
    args = {name: value for name, value in given.items() if value is not None}
    _ask(inventory, "extend", args, why, json, "extending the session")


@app.command(rich_help_panel=SESSION)
def finish(inventory: Inventory = None, why: Why = "", json: Json = False) -> None:
    """Ask the session to write its report and end."""
    _ask(inventory, "finish", None, why, json, "asking the session to finish")


@app.command(rich_help_panel=SESSION)
def stop(inventory: Inventory = None, why: Why = "", json: Json = False) -> None:
    """Seal the session at once: what runs is ended, and the report is built from the record."""
    _ask(inventory, "stop", None, why, json, "stopping the session")
