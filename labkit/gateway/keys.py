"""HOST: finds the provider key and keeps it out of everything that is written.

The key is read from the environment or from a private file, held in memory, and never goes on a command
line. Whatever is logged passes `RedactingFormatter`, tracebacks included.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import stat
from pathlib import Path

from labkit.errors import LabError
from labkit.gateway.config import GatewayConfig

HIDDEN = b"[key]"  # what stands in its place
REHEARSAL_KEY = "rehearsal"  # no secret: the scripted provider asks for none


def provider_key(config: GatewayConfig) -> str:
    """The key for the config's provider. LabError, never naming the value, when none is usable."""
    if config.provider == "rehearsal":
        return REHEARSAL_KEY
    if config.key_env and (value := os.environ.get(config.key_env, "").strip()):
        return _usable(value, f"the environment variable {config.key_env}")
    path = key_path(config)
    if _is_there(path):
        return _usable(_read_private(path), str(path))
    if not config.key_env:
        return "none"  # a server on this machine that asks for no key
    raise LabError(
        f"no key for provider {config.provider}: {config.key_env} is not set and {path} does not exist",
        f"export {config.key_env}=..., or put the key into {path} and `chmod 600` it",
    )


def key_path(config: GatewayConfig) -> Path:
    if config.key_file:
        return Path(config.key_file)
    return Path.home() / ".config" / "vm-lab" / f"{config.provider}.key"


def _is_there(path: Path) -> bool:
    """LabError for what is no regular file: a pipe would be waited for, for ever."""
    try:
        if stat.S_ISREG(path.stat().st_mode):
            return True
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        message = f"the key file {path} cannot be read: {error.strerror}"
        raise LabError(message, f"check who owns {path}") from None
    raise LabError(f"the key file {path} is no regular file", f"put a file there and `chmod 600 {path}`")


def _read_private(path: Path) -> str:
    if os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise LabError(f"the key file {path} can be read by others", f"chmod 600 {path}")
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        raise LabError(f"the key file {path} cannot be read", f"check who owns {path}") from None


def _usable(value: str, origin: str) -> str:
    # An odd byte would make the HTTP library fail with a message that quotes the whole header.
    if value and all("!" <= character <= "~" for character in value):
        return value
    raise LabError(f"the key in {origin} is empty or has spaces or control characters", "copy it again")


def redact(data: bytes, key: str) -> bytes:
    """`data` without the key. A provider may quote it in an error, in JSON with escapes."""
    if key == REHEARSAL_KEY or len(key) < 8:
        return data
    data = data.replace(key.encode(), HIDDEN)
    return _escaped(key).sub(HIDDEN, data) if b"\\" in data else data


@functools.lru_cache(maxsize=8)
def _escaped(key: str) -> re.Pattern[bytes]:
    """The key with any of its characters as JSON may write it: `/` as `\\/`, `&` as `\\u0026`."""
    forms = (rb"(?:\\?%s|\\u(?i:%04x))" % (re.escape(one.encode()), ord(one)) for one in key)
    return re.compile(b"".join(forms))


class RedactingFormatter(logging.Formatter):
    """Formats a record, its traceback too, and replaces the exact key in the result."""

    def __init__(self, key: str) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")
        self._keys = [key]

    def also_hide(self, key: str) -> None:
        """One more key that must stand in no line from here on."""
        self._keys.append(key)

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record).encode("utf-8", "backslashreplace")
        for key in self._keys:
            text = redact(text, key)
        return text.decode("utf-8")
