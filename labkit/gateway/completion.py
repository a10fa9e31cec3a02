"""HOST: what happens once when a run is over: a person's command and webhook get the run summary.

Both come to the gateway by its environment: a webhook's address is often a secret, and the run's folder is
collected and passed on.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from labkit.gateway.config import GatewayConfig, now_utc
from labkit.gateway.files import write_private
from labkit.gateway.providers.openai_compatible import is_loopback

VARIABLE = "LAB_ON_COMPLETE"
RECORD = "completion.json"
SECONDS = 30.0
SHOWN_CHARS = 500

log = logging.getLogger("labkit.gateway")


@dataclass(frozen=True)
class Hook:
    """command: argv, run as the gateway's user. webhook: an http(s) address. Empty: none."""

    command: tuple[str, ...] = ()
    webhook: str = ""

    def environment(self) -> dict[str, str]:
        """What the gateway's process needs in its environment to find this hook."""
        if not (self.command or self.webhook):
            return {}
        return {VARIABLE: json.dumps({"command": list(self.command), "webhook": self.webhook})}

    @classmethod
    def from_environment(cls) -> Hook:
        given = json.loads(os.environ.get(VARIABLE) or "{}")
        return cls(tuple(given.get("command", ())), given.get("webhook", ""))


def tell_once(
    run_dir: Path, config: GatewayConfig, hook: Hook, summary: dict, seconds: float = SECONDS
) -> None:
    """Run command and webhook with the summary as JSON, the first time only; also after a restart.

    seconds: how long each may take. A failure is logged and kept in completion.json, never raised.
    """
    record = run_dir / RECORD
    if not (hook.command or hook.webhook) or record.exists():
        return
    told: dict[str, str] = {"time": now_utc()}
    try:
        write_private(record, json.dumps(told) + "\n")  # before: what is cut off in between is not repeated
        body = json.dumps(summary | {"run_id": config.run_id}).encode()
        if hook.command:
            told["command"] = _run(hook.command, body, _environment(config), seconds)
        if hook.webhook:
            told["webhook"] = _post(hook.webhook, body, seconds)
        write_private(record, json.dumps(told) + "\n")
    except OSError as error:
        told["record"] = f"can't be written: {error.strerror}"
    log.info("told that the run is over: %s", json.dumps(told))


def _environment(config: GatewayConfig) -> dict[str, str]:
    """Without the provider's key and the webhook's address."""
    hidden = {VARIABLE, config.key_env, config.management_key_env}
    return {name: value for name, value in os.environ.items() if name not in hidden}


def _run(command: tuple[str, ...], body: bytes, environment: dict[str, str], seconds: float) -> str:
    """How it ended, in words."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        return f"failed: {command[0]}: {error.strerror}"
    try:
        output, _ = process.communicate(body, timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()  # its pipe is not waited for: a child of its own may hold it
        process.wait()
        return f"failed: not over after {seconds:.0f} s, ended"
    said = output.decode(errors="replace").strip()[-SHOWN_CHARS:]
    word = "ok" if process.returncode == 0 else f"failed: exit code {process.returncode}"
    return f"{word}: {said}" if said else word


def _post(url: str, body: bytes, seconds: float) -> str:
    """The answer's status, in words that name no more of the address than its host."""
    host = urlsplit(url).hostname
    try:
        status = asyncio.run(_status(url, body, seconds))
    except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError) as error:
        return f"failed: {host}: {type(error).__name__}"
    return f"ok: {host}: {status}" if status < 400 else f"failed: {host}: {status}"


async def _status(url: str, body: bytes, seconds: float) -> int:
    headers = {"content-type": "application/json"}
    async with (
        asyncio.timeout(seconds),
        httpx2.AsyncClient(trust_env=not is_loopback(url), timeout=seconds) as client,
        client.stream("POST", url, content=body, headers=headers) as reply,
    ):
        return reply.status_code
