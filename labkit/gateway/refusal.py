"""HOST: how the gateway says no: an OpenAI-shaped error with a code that the harness knows."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse

from labkit.gateway.files import text_of


class AsciiJSON(JSONResponse):
    """In escapes: what a terminal or a guest said may hold what UTF-8 cannot (lone surrogates)."""

    def render(self, content: Any) -> bytes:
        return text_of(content)


class Refusal(Exception):
    """The gateway will not do what was asked. status: HTTP. code: a word of docs/interfaces.md."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code

    def response(self) -> AsciiJSON:
        error = {"message": str(self), "type": "lab_gateway", "code": self.code}
        return AsciiJSON({"error": error}, self.status)
