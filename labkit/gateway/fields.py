"""HOST: what each field of gateway.json may be: its type, its range, and how that is said to a person.

One row a field. A value that gets past them can't fail in the middle of a run for its type alone.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import NamedTuple
from urllib.parse import urlsplit

MOST = 1e9  # of seconds, dollars, tokens: above any use, and far below what a float can't add to
SHOWN_CHARS = 60
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_FILE_NAME = re.compile(r"[^/\\\x00-\x1f]{1,100}")  # a part of a path, and no more than that
_HOST = re.compile(r"([A-Za-z0-9-]{1,63}\.)*[A-Za-z0-9-]{1,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Rule(NamedTuple):
    """wanted: in words, behind "it must be". shown: False where a key might stand by mistake."""

    wanted: str
    fits: Callable[[object], bool]
    shown: bool = True


def _whole(least: int, most: int) -> Rule:
    return Rule(f"a whole number from {least} to {most}", lambda it: type(it) is int and least <= it <= most)


def _number(of: str, above_zero: bool = False) -> Rule:
    """Infinity and NaN, which Python's JSON knows, are in no range."""

    def fits(it: object) -> bool:
        return type(it) in (int, float) and 0 <= it <= MOST and not (above_zero and it == 0)

    return Rule(f"a number of {of}, {'above' if above_zero else 'from'} 0 and at most {MOST:.0f}", fits)


def _text(wanted: str, fits: Callable[[str], object] = lambda _: True, shown: bool = True) -> Rule:
    """Never with a NUL, which no path and no address can have."""
    return Rule(wanted, lambda it: isinstance(it, str) and "\0" not in it and bool(fits(it)), shown)


def _or_empty(rule: Rule) -> Rule:
    return Rule(f"{rule.wanted}, or empty", lambda it: it == "" or rule.fits(it), rule.shown)


def _is_address(text: str) -> bool:
    try:
        return bool(ipaddress.ip_address(text))
    except ValueError:
        return bool(_HOST.fullmatch(text))


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # its port is no number or none that there is
        return False


def _is_time(text: str) -> bool:
    try:
        when = datetime.fromisoformat(text)
        return when.tzinfo is not None and when.timestamp() >= 0
    except (ValueError, OverflowError, OSError):
        return False


def _is_models(it: object) -> bool:
    return isinstance(it, list | tuple) and len(it) > 0 and all(isinstance(one, str) and one for one in it)


_ADDRESS = _text("the address of a network card of this host, such as 127.0.0.1", _is_address)
_URL = _text("an http(s) address", _is_url)
_VARIABLES_NAME = _or_empty(_text("the name of an environment variable", _VARIABLE.fullmatch, shown=False))
_ANY = _text("a text")
_SHORT = _text("a text of at most 200 characters", lambda text: len(text) <= 200, shown=False)

RULES: dict[str, Rule] = {
    "run_id": _text("a run's name, such as 20261129-201202-b0dd88", _NAME.fullmatch),
    "bind": _ADDRESS,
    "port": _whole(1, 65535),
    "provider": _text("a name from run_providers", _FILE_NAME.fullmatch),
    "base_url": _ANY,  # of the rehearsal none is needed: see `problem`
    "key_env": _VARIABLES_NAME,
    "models": Rule("a list of the names of models, at least one", _is_models),
    "token_sha256": _text("a SHA-256 in hex", re.compile("[0-9a-f]{64}").fullmatch, shown=False),
    "budget_usd": _number("dollars"),
    "price_input_per_mtok": _number("dollars"),
    "price_output_per_mtok": _number("dollars"),
    "max_completion_tokens": _whole(1, int(MOST)),
    "minutes": _number("minutes", above_zero=True),
    "pages_base": _or_empty(_URL),
    "started_at": _text(
        "a time with its zone since 1970, such as 2026-11-29T20:12:02+00:00", _is_time
    ),
    "key_file": _ANY,
    "rehearsal_latency_seconds": _number("seconds"),
    "downtime_seconds": _number("seconds"),
    "nonce": _SHORT,
    "boot_id": _SHORT,
    "guest_address": _or_empty(_text("the address of the guest", _is_address)),
    "token_life_seconds": _number("seconds", above_zero=True),
    "day_budget_usd": _number("dollars"),
    "days_dir": _ANY,
    "page_bind": _or_empty(_ADDRESS),
    "page_port": _whole(0, 65535),
    "management_key_env": _VARIABLES_NAME,
}  # fmt: skip


def problem(values: Mapping[str, object]) -> str:
    """What is wrong with the first field that can't be, in words; '' when all can. Unknown ones are wrong."""
    for name, value in values.items():
        if name not in RULES:
            return f"{_shown(name)} is no setting of a gateway"
        if not RULES[name].fits(value):
            return _said(name, value, RULES[name])
    if values.get("provider") != "rehearsal" and "base_url" in values and not _URL.fits(values["base_url"]):
        return _said("base_url", values["base_url"], _URL)
    return ""


def _said(name: str, value: object, rule: Rule) -> str:
    return f"{name} is {_shown(value) if rule.shown else 'another value'}; it must be {rule.wanted}"


def _shown(value: object) -> str:
    """As it stands in the file, in ASCII, not at any length."""
    text = json.dumps(value, default=str)
    return text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + "..."
