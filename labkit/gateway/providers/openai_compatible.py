"""HOST: sends a prepared body to any OpenAI-compatible base URL; owns the connections and the key in use."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

import httpx2

# A model may think for minutes before its first byte; the relay bounds the whole call.
TIMEOUT = httpx2.Timeout(600.0, connect=20.0)


class Provider:
    """`send` posts to BASE_URL/chat/completions. The environment's proxies serve all but loopback."""

    def __init__(self, base_url: str, key: str) -> None:
        self.base_url = base_url.rstrip("/")
        self.key = key
        self._client = httpx2.AsyncClient(timeout=TIMEOUT, trust_env=not is_loopback(self.base_url))

    async def send(self, content: bytes) -> httpx2.Response:
        """The reply with its body unread: read it or iterate it, then aclose it. Raises httpx2.HTTPError.

        A packed one is refused: packed some times over, a thousand bytes are gigabytes, unpacked in one go.
        """
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        headers["accept-encoding"] = "identity"
        request = self._client.build_request(
            "POST", f"{self.base_url}/chat/completions", content=content, headers=headers
        )
        reply = await self._client.send(request, stream=True)
        if reply.headers.get("content-encoding", "").strip().lower() not in ("", "identity"):
            await reply.aclose()
            raise httpx2.DecodingError("the reply is packed, which it was not asked to be")
        return reply

    async def close(self) -> None:
        await self._client.aclose()


def is_loopback(url: str) -> bool:
    """True for an address of this machine: no proxy is asked for it."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
