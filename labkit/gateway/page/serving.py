"""HOST: the page's listener in the gateway's process. A page that can't be served never stops the gateway."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from labkit.errors import LabError
from labkit.gateway import listening
from labkit.gateway.config import GatewayConfig
from labkit.gateway.page import access
from labkit.gateway.page.board import Board
from labkit.gateway.page.names import OwnNames
from labkit.gateway.page.routes import Page

POLL_SECONDS = 0.5

log = logging.getLogger("labkit.gateway")


@contextlib.asynccontextmanager
async def served(run_dir: Path, config: GatewayConfig, board: Board) -> AsyncIterator[None]:
    """Serve the page while inside, where the settings ask for one.

    Where the port is taken (another lab's page) another one is used: page.json says which.
    """
    async with contextlib.AsyncExitStack() as stack:
        follower = asyncio.create_task(_follow(board))
        stack.callback(follower.cancel)
        if config.page_bind and (listener := _listener(config)):
            await stack.enter_async_context(_serving(run_dir, config, board, listener))
        yield


@contextlib.asynccontextmanager
async def _serving(
    run_dir: Path, config: GatewayConfig, board: Board, listener: socket.socket
) -> AsyncIterator[None]:
    token = access.token_of(run_dir)
    app = Page(board, access.Access(token)).app()
    server = listening.server_of(OwnNames(app, config.page_bind))
    async with listening.serving(server, listener):
        url = access.publish(run_dir, token, config.page_bind, listener.getsockname()[1])
        log.info("page: %s (its token is in %s)", url, Path(run_dir) / access.FILE_NAME)
        _tell_a_person(run_dir)
        try:
            yield
        finally:
            board.closed = True  # open streams end by themselves


def _tell_a_person(run_dir: Path) -> None:
    """The address with its token goes to a terminal only: never into a log, which others may be given."""
    with contextlib.suppress(OSError):  # the terminal was closed
        if sys.stdout is not None and sys.stdout.isatty():
            print(f"the page of this run: {access.link(run_dir)}", flush=True)


def _listener(config: GatewayConfig) -> socket.socket | None:
    for port in (config.page_port, 0):
        try:
            return listening.listen(config.page_bind, port)
        except LabError as error:
            log.warning("page: %s", error.message)
    log.error("page: none is served")
    return None


async def _follow(board: Board) -> None:
    while True:
        try:
            while board.poll():
                await asyncio.sleep(0)
        except Exception:  # the gateway's own work must not end because of its page
            log.exception("page: an event could not be taken in")
            await asyncio.sleep(5)
        await asyncio.sleep(POLL_SECONDS)
