"""HOST: what a browser may call the page's machine: an address, localhost, or the machine's own name.

A foreign name that was made to lead here (DNS rebinding) would have a browser take this page for one of that
name's site, and let the site's scripts read it. An address can't be made to lead elsewhere.
"""

from __future__ import annotations

import ipaddress
import socket

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from labkit.gateway.page.routes import HEADERS

ANSWER = {"error": "this name is not the page's: open it by the address that `lab watch --url` prints"}


class OwnNames:
    """The app for who calls it by a name of its own; 421 for all others."""

    def __init__(self, app: ASGIApp, bind: str) -> None:
        """bind: what the page listens on, as it was asked for."""
        self.app, self.names = app, {"localhost", bind.lower(), *names_of(socket.gethostname())}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._own(scope):
            await JSONResponse(ANSWER, 421, headers=HEADERS)(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _own(self, scope: Scope) -> bool:
        given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(given) != 1:
            return False
        name = _without_port(given[0]).lower().rstrip(".")
        return name in self.names or _is_address(name)


def names_of(machine: str) -> set[str]:
    """What a machine is called in its network. machine: as the system knows it, with or without a domain."""
    whole = machine.lower()
    first = whole.partition(".")[0]
    return {whole, first, f"{first}.local"} if first else set()


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
