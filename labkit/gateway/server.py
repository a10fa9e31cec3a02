"""HOST: the gateway in the foreground: puts its parts together, notices when it is over, and stops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import uvicorn

from labkit.errors import USAGE, LabError
from labkit.gateway import app, chain, commands, completion, keys, listening, pidfile, run_key
from labkit.gateway.budget import Budget
from labkit.gateway.config import GatewayConfig
from labkit.gateway.crowd import Repeats
from labkit.gateway.helpers import Helpers
from labkit.gateway.ledger import Ledger
from labkit.gateway.page import access
from labkit.gateway.page import serving as page
from labkit.gateway.page.board import Board
from labkit.gateway.progress import outside_summary
from labkit.gateway.providers import Provider, rehearsal
from labkit.gateway.relay import Relay
from labkit.gateway.watchdog import Signs, Watchdog

INTERRUPTED = 130  # exit code
LINGER_SECONDS = 600.0  # after RUN_SEALED: the guest may still push or ask
LAST_WORD_SECONDS = 5.0  # for the completion hook when we are stopped right after the seal
LEAST_FREE_BYTES = 256 << 20  # of the ledger's disk: some runs' worth of events

log = logging.getLogger("labkit.gateway")


def serve(run_dir: Path, linger_seconds: float = LINGER_SECONDS) -> None:
    """Run the gateway of RUN_DIR until it is stopped, sealed or past its wall limit. LabError on start."""
    config = GatewayConfig.load(run_dir)
    key = keys.provider_key(config)
    log_to_stderr(key)
    check_folder(run_dir)
    _demand_own_ledger(run_dir, config)
    listener = _listener(run_dir, config)
    pidfile.write(run_dir)
    ended = _wishes_to_end()
    try:
        asyncio.run(_serve(run_dir, config, key, listener, linger_seconds, ended))
    finally:
        pidfile.remove_own(run_dir)
    if signal.SIGINT in ended:
        raise interrupted(run_dir)


def interrupted(run_dir: Path) -> LabError:
    """What a person is told who pressed Ctrl-C."""
    message = f"interrupted: the gateway on {run_dir} has ended, and its record is kept"
    return LabError(message, "the same command, or `lab run --resume last`, starts it again", INTERRUPTED)


def _wishes_to_end() -> list[int]:
    """The signals to end that came so far; it grows.

    uvicorn raises a caught signal again after its shutdown; the files must be closed before we end. Until it
    catches any, this keeps the wish: a gateway that was told to end at its start never did.
    """
    ended: list[int] = []
    for name in ("SIGTERM", "SIGINT", "SIGHUP"):  # the last: its terminal was closed; not on Windows
        number = getattr(signal, name, None)
        if number is not None and not (name == "SIGHUP" and signal.getsignal(number) == signal.SIG_IGN):
            signal.signal(number, lambda received, _frame: ended.append(received))
    return ended


def _listener(run_dir: Path, config: GatewayConfig) -> socket.socket:
    """On a port that this run's own gateway holds nobody shall be told to end the program that holds it."""
    pidfile.demand_none(run_dir)
    try:
        return listening.listen(config.bind, config.port)
    except LabError:
        pidfile.demand_none(run_dir)  # it began in this very moment
        raise


async def _serve(
    run_dir: Path, config: GatewayConfig, key: str, listener: socket.socket, linger_seconds: float,
    ended: list[int],
) -> None:  # fmt: skip
    ledger = _ledger(run_dir, config)
    budget = Budget(run_dir, config, ledger)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(ledger.close)  # last of all: what the run's key was billed is in it
        left = max(0.0, config.budget_usd + commands.Extension(run_dir).usd - budget.spent)
        key = await stack.enter_async_context(run_key.held(run_dir, config, key, left, ledger.note))
        _hide(key)
        provider = await stack.enter_async_context(_provider(run_dir, config, key))
        asgi = app.build(run_dir, config, ledger, Relay(config, budget, provider))
        server = listening.server_of(asgi)
        over = _Over(run_dir, config, ledger)
        board = Board(run_dir, config, lambda: budget.spent)
        tasks = [asyncio.create_task(_stop_when_over(server, over, linger_seconds, ended))]
        dog = _watchdog(run_dir, config, ledger, asgi.state.signs, board, over)
        tasks.append(asyncio.create_task(dog.run()))
        log.info("run %s: on %s:%d for %s", config.run_id, config.bind, config.port, config.provider)
        try:
            async with page.served(run_dir, config, board):
                await server.serve(sockets=[listener])
        finally:
            for task in tasks:
                task.cancel()
            if ledger.sealed_at is not None or over.gave_up:
                access.withdraw(run_dir)
            over.tell_if_sealed(LAST_WORD_SECONDS)


def _watchdog(
    run_dir: Path, config: GatewayConfig, ledger: Ledger, signs: Signs, board: Board, over: _Over
) -> Watchdog:
    def outside() -> dict:
        summary = outside_summary(board.progress, config.run_id)
        over.tell({"status": "not sealed", "stop_reason": "given up by the watchdog"})
        return summary

    dog = Watchdog(run_dir, config, ledger, signs, Helpers.from_environment(), outside)
    board.alarm = dog.alarm
    return dog


def _demand_own_ledger(run_dir: Path, config: GatewayConfig) -> None:
    """Two runs in one chain could not be told apart again."""
    first, _line = next(chain.records(Path(run_dir) / chain.LEDGER), ({}, b""))
    body = first.get("body")
    run_id = body.get("run_id", config.run_id) if isinstance(body, dict) else config.run_id
    if run_id != config.run_id:
        message = f"{run_dir} holds the ledger of run {run_id}, and its gateway.json is of {config.run_id}"
        raise LabError(message, "correct run_id, or give that run a folder of its own", USAGE)


def _ledger(run_dir: Path, config: GatewayConfig) -> Ledger:
    try:
        return Ledger(run_dir, config.run_id, config.nonce, config.boot_id)
    except OSError as error:
        message = f"the ledger in {run_dir} cannot be written: {error.strerror}"
        raise LabError(message, "`df -h` shows whether the disk is full; then repeat") from None


@contextlib.asynccontextmanager
async def _provider(run_dir: Path, config: GatewayConfig, key: str) -> AsyncIterator[Provider]:
    async with contextlib.AsyncExitStack() as stack:
        base_url = config.base_url
        if config.provider == "rehearsal":
            base_url = await stack.enter_async_context(_rehearsal(run_dir, config))
        provider = Provider(base_url, key)
        stack.push_async_callback(provider.close)
        yield provider


@contextlib.asynccontextmanager
async def _rehearsal(run_dir: Path, config: GatewayConfig) -> AsyncIterator[str]:
    """The scripted provider on a loopback port of its own; yields its base URL."""
    listener = listening.listen("127.0.0.1", 0)
    server = listening.server_of(rehearsal.build(config, run_dir / "rehearsal.json"))
    async with listening.serving(server, listener):
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"


class _Over:
    """Notices that the run is over, and says so once to who asked to be told."""

    def __init__(self, run_dir: Path, config: GatewayConfig, ledger: Ledger) -> None:
        self.run_dir, self.config, self.ledger = run_dir, config, ledger
        self.hook = completion.Hook.from_environment()
        self.extension = commands.Extension(run_dir)
        self.gave_up = False

    def tell_if_sealed(self, seconds: float = completion.SECONDS) -> None:
        if self.ledger.sealed_at is not None:
            completion.tell_once(self.run_dir, self.config, self.hook, self.ledger.summary or {}, seconds)

    def tell_that_we_give_up(self) -> None:
        self.gave_up = True
        self.tell({"status": "not sealed", "stop_reason": "the gateway's wall limit"})

    def tell(self, summary: dict) -> None:
        completion.tell_once(self.run_dir, self.config, self.hook, summary)


async def _stop_when_over(
    server: uvicorn.Server, over: _Over, linger_seconds: float, ended: list[int]
) -> None:
    while not server.should_exit:
        if ended:
            server.should_exit = True
        sealed = over.ledger.sealed_at
        if sealed is not None:
            await asyncio.to_thread(over.tell_if_sealed)
        if over.config.wall_over(extra_minutes=over.extension.minutes):
            log.info("wall limit over: stopping")
            await asyncio.to_thread(over.tell_that_we_give_up)
            server.should_exit = True
        elif sealed is not None and time.monotonic() - sealed > linger_seconds:
            log.info("run sealed %.0f s ago: stopping", linger_seconds)
            server.should_exit = True
        await asyncio.sleep(min(1.0, linger_seconds / 4 + 0.05))


def check_folder(run_dir: Path) -> None:
    """LabError when the run's gateway folder cannot be written, or its disk is as good as full."""
    probe = Path(run_dir) / ".probe"
    try:
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        hint = "run it as the user who owns the folder (root for /var/lib/vm-lab)"
        raise LabError(f"the gateway cannot write into {run_dir}: {error.strerror}", hint) from None
    free = shutil.disk_usage(run_dir).free
    if free < LEAST_FREE_BYTES:
        message = f"the disk below {run_dir} has {free >> 20} MiB left: no run's events would be safe there"
        raise LabError(message, f"free at least {LEAST_FREE_BYTES >> 20} MiB (`lab gc` shows what can go)")


def _hide(key: str) -> None:
    """A key made after the start must stand in no line of the log either."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, keys.RedactingFormatter):
            handler.formatter.also_hide(key)


def log_to_stderr(key: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(keys.RedactingFormatter(key))
    handler.addFilter(Repeats())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    sys.excepthook = lambda *details: logging.critical("the gateway failed", exc_info=details)
