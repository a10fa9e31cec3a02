"""HOST: the one way to fail: what happened, what to type next, and an exit code."""

from __future__ import annotations

OK = 0
USAGE = 2
NOT_READY = 3
UNREACHABLE = 4
LIMIT = 5
EVIDENCE = 6


class LabError(Exception):
    """A failure a person can act on.

    message: what happened and to what. hint: what to type next. code: the exit code,
    one of the constants above.
    """

    def __init__(self, message: str, hint: str = "", code: int = NOT_READY) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code

    def __str__(self) -> str:
        return f"{self.message}\n     {self.hint}" if self.hint else self.message
