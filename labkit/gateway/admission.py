"""HOST: whether a call may come in at all: the run token, where it comes from, and whether it still lives."""

from __future__ import annotations

import functools
import hmac
import ipaddress
import time

from labkit.gateway.config import GatewayConfig, token_hash
from labkit.gateway.refusal import Refusal


class Admission:
    """Checks calls of one gateway. The token's life begins anew with every call, and when a gateway starts.

    The clock stands still while this machine sleeps, so a closed laptop ends no session.
    """

    def __init__(self, config: GatewayConfig) -> None:
        self.config = config
        self._heard = time.monotonic()

    def check(self, authorization: str, source: str) -> str:
        """The token of a call that may come in; Refusal otherwise."""
        scheme, _, token = authorization.partition(" ")
        # Hashes are compared, in constant time: neither the token nor how much of it is right leaks.
        if not hmac.compare_digest(token_hash(token), self.config.token_sha256) or scheme.lower() != "bearer":
            raise Refusal(401, "bad_token", "the run token is missing or wrong")
        if self.config.guest_address and not _same(source, self.config.guest_address):
            raise Refusal(403, "wrong_source", f"the run token is not good from {source}")
        now = time.monotonic()
        if now - self._heard > self.config.token_life_seconds:
            life = self.config.token_life_seconds / 60
            raise Refusal(401, "token_expired", f"the guest was silent for more than {life:.0f} minutes")
        self._heard = now
        return token


@functools.lru_cache(maxsize=64)
def _same(source: str, wanted: str) -> bool:
    try:
        heard = ipaddress.ip_address(source)
    except ValueError:
        return False
    mapped = getattr(heard, "ipv4_mapped", None)  # how a socket for both families shows IPv4
    return (mapped or heard) == ipaddress.ip_address(wanted)
