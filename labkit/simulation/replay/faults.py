"""HOST: which fault makes the harness write again what a record says of a failed attempt.

The status tells the class, the detail the words: of an HTTP error, of an error in a body, of the HTTP client.
"""

from __future__ import annotations

import re

from harness.replies import SILENCE
from labkit.simulation.script import Fault

SKIPPED = "interrupted"  # by a person or a signal, which a replay does not play
_HTTP = re.compile(r"(?s)HTTP (\d{3}) (.*)")
_CONNECTION = "Connection error. "
_HTML = "not JSON but text: "
_BY_STATUS = ("rate_limit", "server", "refused", "budget_exhausted", "run_ended")


def fault_of(row: dict, waited: float = 0.0) -> Fault | None:
    """None for an attempt that brought a reply. waited: seconds to the next one, as a server may ask for."""
    status, detail, is_billed = row["status"], row["detail"] or "", row["cost_usd"] != 0
    if status == "ok":
        return None
    if found := _HTTP.fullmatch(detail):
        if status == "connection":  # the gateway said so: no provider answered it
            code, _, message = found[2].partition(": ")
            return Fault(
                "server", status=int(found[1]), code=code, message=message, retry_after_seconds=waited
            )
        kind = status if status in _BY_STATUS else "refused"
        message = found[2].removeprefix(f"{kind}: ")
        return Fault(kind, status=int(found[1]), message=message, retry_after_seconds=waited)
    if status in ("in_body_error", *_BY_STATUS):
        return Fault("in_body", message=detail)
    if status == "connection":
        message = detail.removeprefix(_CONNECTION)
        return Fault("reset" if is_billed else "unreachable", message=message)
    return Fault(
        _odd(status, detail), message=detail.removeprefix(_HTML), billed=row["prompt_tokens"] is not None
    )


def _odd(status: str, detail: str) -> str:
    """The kind of what came and was no reply."""
    if status in ("deadline", SILENCE):
        return "drip" if detail.startswith("no complete reply") else "silent"
    if status == "empty":
        return "no_choices" if "choices" in detail else "empty"
    if "cut before its end" in detail:
        return "no_finish"
    return "html" if status == "html" else "blank"
