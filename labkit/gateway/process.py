"""HOST: starts the gateway as a process of its own that outlives the terminal, stops it, says if it lives."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx2

import labkit
from labkit.errors import LabError
from labkit.gateway import completion, keys, listening, pidfile, run_key, server
from labkit.gateway.completion import Hook
from labkit.gateway.config import GatewayConfig
from labkit.gateway.files import BINARY
from labkit.gateway.helpers import Helpers

LOG_NAME = "gateway.log"
START_SECONDS = 60.0  # Python and its packages load slowly on a machine that is busy with a guest
STOP_SECONDS = 15.0


def start(
    run_dir: Path, config: GatewayConfig, hook: Hook | None = None, helpers: Helpers | None = None
) -> int:
    """Start the gateway of RUN_DIR; its pid once it answers. LabError with one sentence when not.

    hook: what it does once when the run is over. helpers: who knows the guest, for its watchdog.
    """
    run_dir = Path(run_dir)
    if (pid := pidfile.read(run_dir)) is not None:
        message = f"the gateway of run {config.run_id} already runs (process {pid})"
        raise LabError(message, "`lab watch` shows the run")
    _preflight(run_dir, config)
    config.save(run_dir)
    child = _spawn(run_dir, (hook or Hook()).environment() | (helpers or Helpers()).environment())
    try:
        _wait_until_it_answers(run_dir, config, child)
    except BaseException:
        child.kill()
        child.wait()
        raise
    return child.pid


def stop(run_dir: Path) -> bool:
    """End the gateway of RUN_DIR; False when none ran. Its record is on the disk already, line by line."""
    pid = pidfile.read(Path(run_dir))
    if pid is None:
        return False
    with contextlib.suppress(OSError):  # it has just ended; Windows says so in other words
        os.kill(pid, signal.SIGTERM)
    if not _gone(run_dir, STOP_SECONDS):
        with contextlib.suppress(OSError):
            os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))
        if not _gone(run_dir, STOP_SECONDS):
            raise LabError(f"the gateway (process {pid}) does not end", f"look at it: ps -p {pid}")
    return True


def alive(run_dir: Path) -> bool:
    """True while the process that gateway.pid names runs and is that very process."""
    return pidfile.read(Path(run_dir)) is not None


def _gone(run_dir: Path, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while alive(run_dir):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _preflight(run_dir: Path, config: GatewayConfig) -> None:
    """What would stop the child at once is better said here, where a person reads it."""
    try:
        run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        message = f"the gateway's folder {run_dir} cannot be made: {error.strerror}"
        raise LabError(message, "run it as the user who owns the folder above it") from None
    server.check_folder(run_dir)
    keys.provider_key(config)
    run_key.management_key(config)
    listening.listen(config.bind, config.port).close()


def _spawn(run_dir: Path, wanted: dict[str, str]) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", completion.VARIABLE: "", **wanted}
    source = str(Path(labkit.__file__).parent.parent)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (source, environment.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "labkit.gateway", str(run_dir.resolve())]
    descriptor = os.open(run_dir / LOG_NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND | BINARY, 0o600)
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            cwd=run_dir.resolve().anchor,
            env=environment,
            **_detached(),
        )
    finally:
        os.close(descriptor)


def _detached() -> dict:
    if os.name == "nt":
        return {"creationflags": subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}


def _wait_until_it_answers(run_dir: Path, config: GatewayConfig, child: subprocess.Popen) -> None:
    deadline = time.monotonic() + START_SECONDS
    log_path = run_dir / LOG_NAME
    while time.monotonic() < deadline:
        if child.poll() is not None:
            message = f"the gateway of run {config.run_id} ended while starting: {_last_line(log_path)}"
            raise LabError(message, f"its log is {log_path}")
        if pidfile.read(run_dir) == child.pid and answers(config):
            return
        time.sleep(0.05)
    message = f"the gateway of run {config.run_id} did not answer in {START_SECONDS:.0f} s"
    raise LabError(message, f"see {log_path}")


def answers(config: GatewayConfig, seconds: float = 2.0) -> bool:
    """True when the gateway of this run takes requests: one that hangs is alive and does not."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.bind, config.bind)
    host = f"[{host}]" if ":" in host else host
    try:
        with httpx2.Client(trust_env=False, timeout=seconds) as client:
            return client.get(f"http://{host}:{config.port}/healthz").status_code == 200
    except httpx2.HTTPError:
        return False


def _last_line(log_path: Path) -> str:
    lines = log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    said = [line.removeprefix("lab: ") for line in lines if line.startswith("lab: ")]
    return (said or lines or ["its log is empty"])[-1]
