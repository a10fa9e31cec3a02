"""GUEST: the ways in which something can fail or end, as exception types."""

from __future__ import annotations

# Why a run ended; explained in docs/interfaces.md. No summary has another.
STOP_REASONS = frozenset(
    {
        "time limit reached", "report delivered", "finished by a person", "stopped by a person",
        "budget exhausted", "disk limit reached", "wall limit reached", "model unreachable", "interrupted",
    }
)  # fmt: skip


class HarnessError(Exception):
    """Anything the harness itself raises; its text is fit for a record and a person."""


class SettingsError(HarnessError):
    """run.json is missing, unreadable or has a key too many or too few."""


class ContextError(HarnessError):
    """An outgoing message list that a provider would refuse for good (orphan or unanswered call)."""


class ModelError(HarnessError):
    """No usable reply after the retries that this kind of failure deserves.

    kind: rate_limit | server | connection | silence | deadline | empty | html | in_body_error | malformed |
    refused
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class NoMoney(HarnessError):
    """A call was not made because its worst case would pass the limit."""


class Interrupted(HarnessError):
    """The process was asked to stop (SIGTERM)."""


class EndRun(HarnessError):
    """The session is over. stop_reason: a word group from docs/interfaces.md."""

    def __init__(self, stop_reason: str) -> None:
        super().__init__(stop_reason)
        self.stop_reason = stop_reason
