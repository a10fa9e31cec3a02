"""HOST: the page's routes: login, state, files, and the commands of its buttons.

Nothing here answers another origin: no CORS, cookies of this site only, and each order carries a proof that
a foreign page can't read.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from labkit.errors import LabError
from labkit.gateway import commands
from labkit.gateway.page.access import LOGIN_SECONDS, Access, Login
from labkit.gateway.page.board import Board
from labkit.gateway.page.stream import Stream

STATIC = Path(__file__).with_name("static")
TYPES = {
    "index.html": "text/html; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
}
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
MAX_BODY = 64 * 1024
MAX_STREAMS = 20
EARLIER = 200  # events of one look back
WRONG_TOKEN_SECONDS = 0.5

log = logging.getLogger("labkit.gateway")
Handler = Callable[[Request, Login], Awaitable[Response]]


class Denied(Exception):
    """status and the sentence that the page shows."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Page:
    """The routes of one run's page as methods."""

    def __init__(self, board: Board, access: Access) -> None:
        self.board, self.access = board, access
        # Cookies know no ports: the name keeps the pages of two labs on one address apart.
        self.cookie_name = f"lab_page_{board.config.run_id}"
        self.stream = Stream(board)

    def app(self) -> Starlette:
        known = functools.partial(_known, self)
        return Starlette(
            routes=[
                Route("/", functools.partial(_static, name="index.html")),
                Route("/static/{name}", _static),
                Route("/login", self.log_in, methods=["POST"]),
                Route("/logout", known(self.log_out), methods=["POST"]),
                Route("/state", known(self.state)),
                Route("/events", known(self.events)),
                Route("/rows", known(self.rows)),
                Route("/row/{n:int}", known(self.row)),
                Route("/file/{n:int}", known(self.file)),
                Route("/command", known(self.command), methods=["POST"]),
            ],
            exception_handlers={Denied: _denied, ClientDisconnect: _gone, 404: _missing},
        )

    async def log_in(self, request: Request) -> Response:
        given = await _json(request)
        if not self.access.is_token(given.get("token")):
            log.info("page: a wrong token from %s", _from(request))
            await asyncio.sleep(WRONG_TOKEN_SECONDS)
            right = "`lab watch --url` prints the right one; a gateway by hand says at its start where it is"
            raise Denied(401, f"this token does not open the page; {right}")
        name = str(given.get("name") or "somebody at the page")
        answer = _answer({"ok": True})
        proof = self.access.cookie(name)
        answer.set_cookie(self.cookie_name, proof, LOGIN_SECONDS, httponly=True, samesite="strict")
        return answer

    async def log_out(self, request: Request, login: Login) -> Response:
        _demand_proof(request, login)
        answer = _answer({"ok": True})
        answer.delete_cookie(self.cookie_name, httponly=True, samesite="strict")
        return answer

    async def state(self, request: Request, login: Login) -> Response:
        """Where to begin: the state, and the last events' place."""
        board = self.board
        facts = {"csrf": login.csrf, "name": login.name, "state": board.state(), "files": board.files}
        return _answer(facts | {"verdicts": board.last_verdicts(100)})

    async def rows(self, request: Request, login: Login) -> Response:
        before = _number(request.query_params.get("before", "0"))
        return _answer({"rows": self.board.rows_before(before, EARLIER)})

    async def row(self, request: Request, login: Login) -> Response:
        return _found(self.board.row(request.path_params["n"]))

    async def file(self, request: Request, login: Login) -> Response:
        return _found(self.board.file(request.path_params["n"]))

    async def events(self, request: Request, login: Login) -> Response:
        """The stream from the place that the browser knows."""
        after = request.headers.get("last-event-id") or request.query_params.get("after", "0")
        if self.stream.open >= MAX_STREAMS:
            raise Denied(503, f"{MAX_STREAMS} pages are open already")
        pieces = self.stream.pieces(_number(after))
        headers = {**HEADERS, "x-accel-buffering": "no"}
        return StreamingResponse(pieces, media_type="text/event-stream", headers=headers)

    async def command(self, request: Request, login: Login) -> Response:
        _demand_proof(request, login)
        given = await _json(request)
        if self.board.progress.summary is not None:
            raise Denied(409, "the run is sealed: it hears nothing any more")
        name, args = str(given.get("name")), given.get("args") or {}
        if not isinstance(args, dict):
            raise Denied(400, "args is not an object")
        who = {"by": "page", "user": login.name, "from": _from(request)}
        ask = functools.partial(
            commands.append, self.board.run_dir, name, args, who=who, why=str(given.get("why") or ""),
            key=str(given.get("key") or "")[:80],
        )  # fmt: skip
        try:
            return _answer({"id": await asyncio.to_thread(ask)})
        except LabError as error:
            raise Denied(400, error.message) from None


def _known(page: Page, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def checked(request: Request) -> Response:
        login = page.access.login(request.cookies.get(page.cookie_name))
        if login is None:
            raise Denied(401, "log in first")
        return await handler(request, login)

    return checked


def _demand_proof(request: Request, login: Login) -> None:
    """A foreign page can make a browser send the cookie where SameSite is not enough (another port of this
    address is the same site); it can't read the proof, nor set this header without being asked first."""
    if request.headers.get("x-lab-csrf") != login.csrf:
        raise Denied(403, "the request does not come from this page")
    origin, host = request.headers.get("origin"), request.headers.get("host")
    if origin not in (None, f"http://{host}", f"https://{host}"):
        raise Denied(403, "the request comes from another page")


async def _json(request: Request) -> dict[str, Any]:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_BODY:
            raise Denied(413, "the request is too large")
    try:
        given = json.loads(data)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise Denied(400, "the request is not a JSON object")
    return given


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise Denied(400, "a place is a whole number")
    return int(text)


def _from(request: Request) -> str:
    return request.client.host if request.client else "unknown"


def _answer(facts: dict, status: int = 200) -> Response:
    return JSONResponse(facts, status, headers=HEADERS)


def _found(facts: dict | None) -> Response:
    return _answer({"error": "there is no such thing"}, 404) if facts is None else _answer(facts)


async def _static(request: Request, name: str = "") -> Response:
    name = name or request.path_params["name"]
    if name not in TYPES:
        return _answer({"error": "there is no such thing"}, 404)
    return Response((STATIC / name).read_bytes(), media_type=TYPES[name], headers=HEADERS)


async def _denied(request: Request, error: Exception) -> Response:
    assert isinstance(error, Denied)
    return _answer({"error": str(error)}, error.status)


async def _missing(request: Request, error: Exception) -> Response:
    return _answer({"error": "there is no such thing"}, 404)


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=400)
