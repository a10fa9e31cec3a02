"""HOST: the door of the guest's side: lets a push straight to the ledger, and all else to the routes.

A push comes with every event of a session. The framework's layers (middleware, routing, objects for request
and response) would cost it as much of the processor as all that is done with it behind them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

PUSHES = "/v1/events"

Admit = Callable[[str, str, str | None], str]
Take = Callable[[Receive, object], Awaitable[bytes]]


class Front(Starlette):
    """The routes of the guest's side, and before them the way of a push."""

    def __init__(self, admit: Admit, take: Take, **routes: Any) -> None:
        """admit: by the header Authorization, the source, the header Lab-Quiet. take: reads, stores, answers.

        What they raise is answered as the routes' exception_handlers say.
        """
        super().__init__(**routes)
        self._admit, self._take = admit, take
        self._known = tuple(routes["exception_handlers"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PUSHES:
            await super().__call__(scope, receive, send)
        elif scope["method"] != "POST":
            await PlainTextResponse("Method Not Allowed", 405, {"allow": "POST"})(scope, receive, send)
        else:
            await self._push(scope, receive, send)

    async def _push(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(reversed(scope["headers"]))  # of one that comes twice the first counts
        client, quiet = scope["client"], headers.get(b"lab-quiet")
        token = headers.get(b"authorization", b"").decode("latin-1")
        try:
            self._admit(token, client[0] if client else "", quiet and quiet.decode("latin-1"))
            answer = await self._take(receive, client)
        except self._known as error:
            await self._no(scope, receive, send, error)
            return
        head = [(b"content-length", b"%d" % len(answer)), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": answer})

    async def _no(self, scope: Scope, receive: Receive, send: Send, error: Exception) -> None:
        scope["app"] = self
        handlers: dict[Any, Any] = self.exception_handlers
        handler = next(handler for kind, handler in handlers.items() if isinstance(error, kind))
        await (await handler(Request(scope, receive), error))(scope, receive, send)
