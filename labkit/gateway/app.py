"""HOST: the routes that the guest sees: checks token and size, then calls the part that owns the matter.

`docs/interfaces.md` describes each answer.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive

from labkit.gateway import commands
from labkit.gateway.admission import Admission
from labkit.gateway.config import GatewayConfig
from labkit.gateway.crowd import Bodies
from labkit.gateway.files import text_of
from labkit.gateway.front import Admit, Front
from labkit.gateway.ledger import ForeignRun, Ledger
from labkit.gateway.providers.rehearsal import pages
from labkit.gateway.pushes import Pushes
from labkit.gateway.refusal import AsciiJSON, Refusal
from labkit.gateway.relay import Relay
from labkit.gateway.rows import BadEvents
from labkit.gateway.watchdog import Signs

log = logging.getLogger("labkit.gateway")
Handler = Callable[[Request], Awaitable[Response]]


class Gateway:
    """The routes of one run as methods."""

    def __init__(self, run_dir: Path, config: GatewayConfig, ledger: Ledger, relay: Relay) -> None:
        self.run_dir = run_dir
        self.config = config
        self.ledger = ledger
        self.relay = relay
        self.pushes, self.bodies = Pushes(ledger), Bodies()
        self.deliveries = commands.Deliveries(run_dir, lambda item: ledger.note("command", **item))
        self.extension = commands.Extension(run_dir)

    async def chat(self, request: Request) -> Response:
        if self.ledger.sealed_at is not None:
            raise Refusal(403, "run_ended", "this run is sealed")
        if self.config.wall_over(extra_minutes=self.extension.minutes):
            raise Refusal(403, "run_ended", "this run is past its wall limit")
        raw = await self.bodies.read(request.receive)
        size = len(raw)
        try:
            call = self.relay.answer(raw, request.state.token)
            del raw  # the call goes on for minutes with what it sends
            return self.bodies.until_answered(size, await call)
        except BaseException:
            self.bodies.done(size)
            raise

    async def events(self, receive: Receive, client: object) -> bytes:
        data = await self.bodies.read(receive)
        try:
            answer = await self.pushes.accept(data, client)
            if answer.conflicts:
                return text_of(answer._asdict())
            return b'{"watermark":%d}' % answer.watermark
        except ForeignRun as error:
            raise Refusal(409, "foreign_run", str(error)) from None
        except BadEvents as error:
            raise Refusal(400, "bad_request", str(error)) from None
        finally:
            self.bodies.done(len(data))

    async def commands(self, request: Request) -> Response:
        after = request.query_params.get("after", "0")
        if not (after.isascii() and after.isdigit() and len(after) < 16):
            raise Refusal(400, "bad_request", "after must be a whole number")
        return AsciiJSON({"commands": self.deliveries.hand_out(int(after))})

    async def acknowledge(self, request: Request) -> Response:
        data = await self.bodies.read(request.receive)
        self.bodies.done(len(data))
        try:
            upto = json.loads(data)["acknowledged"]
            if type(upto) is not int or upto < 0:
                raise ValueError("acknowledged must be a whole number")
            return JSONResponse({"acknowledged": self.deliveries.acknowledge(upto)})
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise Refusal(400, "bad_request", f"no acknowledgement: {error}") from None

    async def page(self, request: Request) -> Response:
        html = pages.read(request.path_params["name"]) if self.config.provider == "rehearsal" else None
        return HTMLResponse(html) if html is not None else _not_found()


def build(run_dir: Path, config: GatewayConfig, ledger: Ledger, relay: Relay) -> Starlette:
    """The gateway of one run as an ASGI app."""
    gateway = Gateway(run_dir, config, ledger, relay)
    admission, signs = Admission(config), Signs()

    def admit(authorization: str, source: str, quiet: str | None) -> str:
        token = admission.check(authorization, source)
        signs.heard(quiet)
        return token

    def guarded(handler: Handler) -> Handler:
        return _admitted(admit, handler)

    gateway_app = Front(
        admit,
        gateway.events,
        routes=[
            Route("/v1/chat/completions", guarded(gateway.chat), methods=["POST"]),
            Route("/healthz", _healthz),
            Route("/v1/commands", guarded(gateway.commands)),
            Route("/v1/commands/ack", guarded(gateway.acknowledge), methods=["POST"]),
            Route("/rehearsal/pages/{name}.html", gateway.page),
        ],
        exception_handlers={Refusal: _refused, OSError: _disk, ClientDisconnect: _gone},
    )
    gateway_app.state.refusals = {}
    gateway_app.state.signs = signs
    return gateway_app


def _admitted(admit: Admit, handler: Handler) -> Handler:
    async def checked(request: Request) -> Response:
        source, headers = request.client.host if request.client else "", request.headers
        request.state.token = admit(headers.get("authorization", ""), source, headers.get("lab-quiet"))
        return await handler(request)

    return checked


async def _healthz(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _refused(request: Request, refusal: Exception) -> Response:
    assert isinstance(refusal, Refusal)
    count = request.app.state.refusals[refusal.code] = request.app.state.refusals.get(refusal.code, 0) + 1
    if count <= 100 or count % 1000 == 0:  # a guest gone wild must not fill the host's disk with our log
        log.info("%s refused, %s (no. %d): %s", request.url.path, refusal.code, count, refusal)
    return refusal.response()


async def _disk(request: Request, error: Exception) -> Response:
    log.error("%s: the gateway's folder cannot be written: %s", request.url.path, error)
    return Refusal(507, "gateway_disk", "the gateway cannot write its record").response()


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # the guest hung up: nobody reads this


def _not_found() -> Response:
    return JSONResponse(
        {"error": {"message": "no such page", "type": "lab_gateway", "code": "not_found"}}, 404
    )
