"""HOST: how the gateway's process listens and serves: its sockets, and the settings all its servers have."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import AsyncIterator

import uvicorn

from labkit.errors import LabError
from labkit.gateway.crowd import Patient

SHUTDOWN_SECONDS = 5
KEEP_ALIVE_SECONDS = 75  # longer than any client keeps an idle connection: closing first would cost it a call


def listen(bind: str, port: int) -> socket.socket:
    """A listening socket; LabError in words when the address is taken, foreign or not allowed."""
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    # The protocol is named because asyncio sets TCP_NODELAY only then: without it a reply waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "nt":  # there SO_REUSEADDR would let a second process take the port over
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((bind, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise _listen_failure(bind, port, error) from None
    return listener


def _listen_failure(bind: str, port: int, error: OSError) -> LabError:
    if error.errno == errno.EADDRINUSE:
        message = f"port {port} on {bind} is already in use"
        return LabError(message, "end the program that holds it, or change run_gateway_port in run.yml")
    if error.errno == errno.EADDRNOTAVAIL:
        message = f"this machine has no address {bind} for the gateway: the lab's network is not up"
        return LabError(message, "`lab doctor` checks the network, `lab up` makes it")
    message = f"the gateway cannot listen on {bind}:{port}: {error.strerror}"
    return LabError(message, "see run_gateway_port in run.yml")


def server_of(asgi: object) -> uvicorn.Server:
    """A server of this process; it runs once its `serve` gets a listener."""
    return uvicorn.Server(
        uvicorn.Config(
            asgi,
            http=Patient,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
    )


@contextlib.asynccontextmanager
async def serving(server: uvicorn.Server, listener: socket.socket) -> AsyncIterator[None]:
    """Run a server beside the gateway's own one while inside."""
    server.capture_signals = contextlib.nullcontext  # signals belong to the gateway's own server
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await task
