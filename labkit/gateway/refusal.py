"""HOST: how the gateway says no: an OpenAI-shaped error with a code that the harness knows."""

from __future__ import annotations

from starlette.responses import JSONResponse


class Refusal(Exception):
    """The gateway will not do what was asked. status: HTTP. code: a word of docs/interfaces.md."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code

    def response(self) -> JSONResponse:
        error = {"message": str(self), "type": "lab_gateway", "code": self.code}
        return JSONResponse({"error": error}, self.status)
