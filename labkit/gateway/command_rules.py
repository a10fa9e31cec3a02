"""HOST: which commands there are, and what may be asked with them: arguments, lengths, sums over a run."""

from __future__ import annotations

import re
from typing import Any

from labkit.errors import USAGE, LabError

NAMES = (
    "pause",  # hold between two steps; the time is not charged
    "unpause",  # go on
    "say",  # {"text"}: a message to the Worker
    "extend",  # {"minutes", "budget_usd"}: at least one of them; more of both than the run began with
    "finish",  # go to the final report now
    "stop",  # seal at once
)
MAX_TEXT, MAX_WHY = 4000, 500  # characters
LARGEST = 1e15  # far above all limits; an integer can be too large to become a float
MOST_MINUTES, MOST_USD = 48 * 60, 10_000  # all extensions of a run together
_CONTROLS = re.compile("[\x80-\x9f]")


def checked(name: str, args: dict) -> dict:
    """The arguments of a command, as they are recorded; LabError (usage) where they can't be meant."""
    if name not in NAMES:
        raise LabError(f"no command is called {name!r}", f"there are: {', '.join(NAMES)}", USAGE)
    known = {"say": ("text",), "extend": ("minutes", "budget_usd")}.get(name, ())
    if odd := sorted(set(args) - set(known)):
        raise LabError(f"{name} has no {', '.join(odd)}", "nothing was asked", USAGE)
    if name == "say":
        return {"text": _text(args.get("text"))}
    given = {key: _amount(key, value) for key, value in args.items() if value is not None}
    if name == "extend" and not given:
        raise LabError("extend by what?", "`lab extend --minutes 60`, `--budget 5`, or both", USAGE)
    return given


def checked_why(why: str) -> str:
    """The reason of a command, as it is recorded; LabError (usage) where it is too long."""
    if len(why := sound(why)) > MAX_WHY:
        raise LabError(f"the reason is longer than {MAX_WHY} characters", "nothing was asked", USAGE)
    return why


def demand_within_limits(name: str, args: dict, minutes: float, usd: float) -> None:
    """LabError (usage) where this, with the minutes and dollars that were given before, is too much."""
    if name == "extend" and minutes + args.get("minutes", 0.0) > MOST_MINUTES:
        raise LabError(f"a run is extended by {MOST_MINUTES} minutes at most", "nothing was extended", USAGE)
    if name == "extend" and usd + args.get("budget_usd", 0.0) > MOST_USD:
        raise LabError(f"a run is extended by ${MOST_USD} at most", "nothing was extended", USAGE)


def sound(text: Any) -> Any:
    """Without what UTF-8 cannot hold: a terminal of another encoding gives lone surrogates.

    Nor control characters above ASCII: the harness's cleaning takes them, and what follows, for an escape.
    """
    return _CONTROLS.sub("?", text).encode("utf-8", "replace").decode() if isinstance(text, str) else text


def _text(text: object) -> str:
    if not isinstance(text, str) or not text.strip():
        raise LabError("there is nothing to say", '`lab say "..."`', USAGE)
    if len(text) > MAX_TEXT:
        raise LabError(f"the message is longer than {MAX_TEXT} characters", "nothing was said", USAGE)
    return sound(text.strip())


def _amount(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < LARGEST:
        raise LabError(f"{name} {value!r} is not a number above zero", "nothing was extended", USAGE)
    return float(value)
