"""HOST: who may open the page: its token, a login as a signed cookie, the proof against forged requests.

page.json (0600, in the gateway's folder) holds the token. A login is a signature with it, so it outlives a
restart of the gateway and dies with the run.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from labkit.gateway.files import write_private

FILE_NAME = "page.json"
LOGIN_SECONDS = 7 * 24 * 3600
MAX_NAME = 60


@dataclass(frozen=True)
class Login:
    """One browser that knows the token. name: as its person gave it; csrf: what its orders must carry."""

    name: str
    csrf: str


class Access:
    """The token of one run's page, and what is signed with it."""

    def __init__(self, token: str) -> None:
        self._key = token.encode()

    def is_token(self, given: object) -> bool:
        """In constant time."""
        if not isinstance(given, str):
            return False
        return hmac.compare_digest(_sha(given.encode("utf-8", "replace")), _sha(self._key))

    def cookie(self, name: str) -> str:
        """A new login as the value of a cookie."""
        shown = base64.urlsafe_b64encode(name[:MAX_NAME].encode("utf-8", "replace")).decode()
        body = f"{int(time.time()) + LOGIN_SECONDS}.{secrets.token_hex(8)}.{shown}"
        return f"{body}.{self._sign('login', body)}"

    def login(self, cookie: str | None) -> Login | None:
        """The login that a cookie proves; None when it proves none or is over."""
        body, _, signature = (cookie or "").rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign("login", body).encode()):
            return None
        until, _, shown = body.split(".")
        if int(until) < time.time():
            return None
        name = base64.urlsafe_b64decode(shown).decode("utf-8", "replace")
        return Login(name, self._sign("csrf", body))

    def _sign(self, what: str, body: str) -> str:
        return hmac.new(self._key, f"{what}|{body}".encode(), hashlib.sha256).hexdigest()


def _sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def token_of(run_dir: Path) -> str:
    """The page's token: the run's own, kept over restarts; made when there is none yet."""
    known = read(run_dir).get("token")
    return known if isinstance(known, str) and len(known) >= 24 else secrets.token_urlsafe(24)


def publish(run_dir: Path, token: str, bind: str, port: int) -> str:
    """Write page.json for the person's own commands. Returns the address without the token."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bind, bind)
    url = f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
    facts = {"token": token, "bind": bind, "port": port, "url": url}
    write_private(Path(run_dir) / FILE_NAME, json.dumps(facts, indent=1) + "\n")
    return url


def withdraw(run_dir: Path) -> None:
    """The run is over: its token opens nothing any more, and is not collected with the folder."""
    (Path(run_dir) / FILE_NAME).unlink(missing_ok=True)


def read(run_dir: Path) -> dict:
    """{"token", "bind", "port", "url"}, or {} where no page was ever served."""
    try:
        facts = json.loads((Path(run_dir) / FILE_NAME).read_text(encoding="utf-8"))
        return facts if isinstance(facts, dict) else {}
    except (OSError, ValueError):
        return {}


def link(run_dir: Path) -> str:
    """The address that logs in by itself; '' where no page is served. What stands behind # is never sent."""
    facts = read(run_dir)
    return f"{facts['url']}#{facts['token']}" if {"url", "token"} <= set(facts) else ""
