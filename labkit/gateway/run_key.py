"""HOST: a provider key of one run's own, limited to what its budget still holds, gone when the run is over.

Off unless the provider's `management_key_env` in run_providers names a variable that holds a management key.
Written after OpenRouter's documented API (POST, GET, DELETE BASE_URL/keys); tried against a scripted stand-in
only. The key itself is in memory; `run-key.json` has its name at the provider, so that a later gateway can
revoke what a killed one left behind.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx2

from labkit.errors import LabError
from labkit.gateway.config import GatewayConfig
from labkit.gateway.files import write_private
from labkit.gateway.providers.openai_compatible import is_loopback

FILE_NAME = "run-key.json"
SECONDS = 20.0

log = logging.getLogger("labkit.gateway")


def management_key(config: GatewayConfig) -> str:
    """The key that makes keys; empty when none is wanted. LabError when it is wanted and not there."""
    if not config.management_key_env or config.provider == "rehearsal":
        return ""
    if value := os.environ.get(config.management_key_env, "").strip():
        return value
    raise LabError(
        f"no management key for provider {config.provider}: {config.management_key_env} is not set",
        f"export {config.management_key_env}=..., or empty management_key_env in run_providers",
    )


class KeyDesk:
    """Makes, looks at and revokes keys of one provider. Raises httpx2.HTTPError or ValueError."""

    def __init__(self, base_url: str, key: str) -> None:
        headers = {"authorization": f"Bearer {key}"}
        local = is_loopback(base_url)
        self._url = base_url.rstrip("/") + "/keys"
        self._http = httpx2.AsyncClient(headers=headers, timeout=SECONDS, trust_env=not local)

    async def create(self, name: str, limit_usd: float) -> tuple[str, str]:
        """(the key, its name at the provider)."""
        made = await self._ask("POST", self._url, json={"name": name, "limit": round(limit_usd, 6)})
        key, data = made.get("key"), made.get("data")
        if not isinstance(key, str) or not isinstance(data, dict) or not isinstance(data.get("hash"), str):
            raise ValueError("the answer has no key and hash")
        return key, data["hash"]

    async def billed(self, name: str) -> float:
        """Dollars that the provider has counted on the key so far."""
        data = (await self._ask("GET", f"{self._url}/{name}")).get("data")
        return float(data["usage"] if isinstance(data, dict) else "no usage")

    async def revoke(self, name: str) -> None:
        await self._ask("DELETE", f"{self._url}/{name}")

    async def close(self) -> None:
        await self._http.aclose()

    async def _ask(self, method: str, url: str, **more: object) -> dict:
        reply = await self._http.request(method, url, **more)
        reply.raise_for_status()
        answer = reply.json()
        return answer if isinstance(answer, dict) else {}


@contextlib.asynccontextmanager
async def held(
    run_dir: Path, config: GatewayConfig, key: str, limit_usd: float, note: Callable[..., None]
) -> AsyncIterator[str]:
    """The key to call the provider with: the run's own while this lasts, or `key` where none is wanted.

    note: writes into the ledger what was made, billed and revoked. LabError when the provider makes none.
    """
    manager = management_key(config)
    if not manager:
        yield key
        return
    desk = KeyDesk(config.base_url, manager)
    try:
        await _end_earlier(run_dir, desk, note)
        own, name = await _made(desk, config, limit_usd)
        write_private(run_dir / FILE_NAME, json.dumps({"hash": name, "limit_usd": limit_usd}) + "\n")
        note("run_key", hash=name, limit_usd=limit_usd)
        try:
            yield own
        finally:
            await _ended(run_dir, desk, name, note)
    finally:
        await desk.close()


async def _made(desk: KeyDesk, config: GatewayConfig, limit_usd: float) -> tuple[str, str]:
    try:
        return await desk.create(f"lab {config.run_id}", limit_usd)
    except (httpx2.HTTPError, ValueError) as error:
        message = f"provider {config.provider} makes no key for the run: {type(error).__name__}"
        raise LabError(message, "empty management_key_env in run_providers, or look at that key") from None


async def _end_earlier(run_dir: Path, desk: KeyDesk, note: Callable[..., None]) -> None:
    """A gateway that was killed left its key: it must not stay good."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        name = json.loads((run_dir / FILE_NAME).read_text(encoding="utf-8"))["hash"]
        await _ended(run_dir, desk, str(name), note)


async def _ended(run_dir: Path, desk: KeyDesk, name: str, note: Callable[..., None]) -> None:
    billed = None
    try:
        billed = await desk.billed(name)
    except (httpx2.HTTPError, ValueError, LookupError, TypeError) as error:
        log.warning("what the provider billed on the run's key is unknown: %s", type(error).__name__)
    try:
        await desk.revoke(name)
    except (httpx2.HTTPError, ValueError) as error:
        log.error(
            "the run's key %s was not revoked (%s): remove it at the provider", name, type(error).__name__
        )
        note("bill", hash=name, usd=billed, revoked=False)
        return
    (run_dir / FILE_NAME).unlink(missing_ok=True)
    note("bill", hash=name, usd=billed, revoked=True)
