"""HOST: turns what YAML gives for a provider script into rows, and names the key that is unknown or unfit."""

from __future__ import annotations

import difflib
import math
from dataclasses import MISSING, fields
from typing import Any

from labkit.errors import USAGE, LabError

_IN_WORDS = {
    "tuple": "a list",
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "dict": "keys and values",
}
SEE = "see docs/simulate.md"


def bad(name: str, what: str, hint: str) -> LabError:
    return LabError(f"provider script {name}: {what}", hint, USAGE)


def rows(kind: type, values: Any, name: str, key: str) -> tuple:
    """A list of such rows."""
    if not isinstance(values, list):
        raise bad(name, f"{key} is no list", f"begin each entry of {key} with `- `")
    return tuple(row(kind, value, name, key) for value in values)


def row(kind: type, values: Any, name: str, where: str) -> Any:
    """An object of the dataclass `kind`. where: the key it stands under. Raises LabError (usage)."""
    place = f" in {where}" if where else ""
    if not isinstance(values, dict):
        raise bad(name, f"{where} wants keys, not {values!r}", SEE)
    known = {one.name: one for one in fields(kind)}
    _refuse_unknown(values, known, name, place)
    needed = [one.name for one in known.values() if one.default is MISSING and one.default_factory is MISSING]
    if missing := [one for one in needed if one not in values]:
        raise bad(name, f"{missing[0]} is missing{place}", SEE)
    try:
        return kind(**{key: _fitting(known[key].type, key, value) for key, value in values.items()})
    except (TypeError, ValueError, OverflowError) as error:  # the last: a number of hundreds of digits
        raise bad(name, f"{error}{place}", SEE) from error


def _refuse_unknown(values: dict, known: dict[str, Any], name: str, place: str) -> None:
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there is: {', '.join(known)}"
            raise bad(name, f"unknown key {key}{place}", hint)


def _fitting(wanted: str, key: str, value: Any) -> Any:
    """A value of the annotated type. Raises ValueError."""
    kind = wanted.split("[")[0].split(" ")[0]
    if kind in ("float", "int") and isinstance(value, str):  # YAML takes 1e9 for a text
        value = _number(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
    fits = {
        "tuple": isinstance(value, list | tuple),
        "str": isinstance(value, str | int),
        "float": is_number,
        "int": is_number and float(value).is_integer(),
        "bool": isinstance(value, bool),
        "dict": isinstance(value, dict),
    }
    if not fits.get(kind, True):  # the rest are rows, which were made from dicts before
        raise ValueError(f"{key} must be {_IN_WORDS[kind]}, not {value!r}")
    return {"tuple": tuple, "str": str}.get(kind, lambda one: one)(value)


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
