"""HOST: the connection to libvirt, and what its refusals are called. No other file imports the binding.

A libvirt that says nothing any more is not waited for without end. Its first word has a time-out of ours;
then its own signs of life are asked for, which the daemon gives however long a call takes.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Self

from labkit.errors import LabError

URI = "qemu:///system"
OPEN_SECONDS = 120.0  # a daemon that has just been started, on an emulating machine
ALIVE_SECONDS, ALIVE_TRIES = 10, 12  # a sign of life is asked for so often; without any the connection is cut
MUTE = (
    "it stands still: `systemctl restart libvirtd`, or without systemd `kill -9 $(cat /run/libvirtd.pid)`;"
    " guests go on, then repeat"
)

_events: list[threading.Thread] = []
_mute: dict[str, threading.Thread] = {}  # by URI: what still waits for libvirt's first word


def binding() -> Any:
    """The libvirt module; LabError where it is not installed."""
    try:
        import libvirt
    except ImportError as error:
        raise LabError(
            "the libvirt binding is not installed", "`./lab doctor` installs what is missing"
        ) from error
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    return libvirt


class RefusedError(LabError):
    """libvirt is there and does not let us in: starting it would not help."""


def _refusals(lib: Any) -> tuple[int, ...]:
    return (
        lib.VIR_ERR_AUTH_FAILED,
        lib.VIR_ERR_AUTH_CANCELLED,
        lib.VIR_ERR_AUTH_UNAVAILABLE,
        lib.VIR_ERR_ACCESS_DENIED,
    )


class Connection:
    """A connection to libvirt; a context manager.

    Raises LabError (not ready) when libvirt does not answer.
    """

    def __init__(self, uri: str = URI) -> None:
        self.lib = binding()
        try:
            self.connection = self._opened(uri)
        except self.lib.libvirtError as error:
            if error.get_error_code() in _refusals(self.lib):
                raise RefusedError(
                    f"libvirt refuses the connection to {uri}: {error}",
                    "run the command as root; auth_unix_rw in /etc/libvirt/libvirtd.conf says who may",
                ) from error
            raise LabError(
                f"libvirt does not answer at {uri}: {error}", "`lab doctor` says how to start it"
            ) from error

    def _opened(self, uri: str) -> Any:
        """Within OPEN_SECONDS, else RefusedError; at once where an earlier one still waits."""
        _run_events(self.lib)
        answer: list[Any] = []
        waiting = _mute.get(uri)
        if waiting is None or not waiting.is_alive():
            waiting = _background(lambda: answer.append(_attempt(self.lib, uri)))
            waiting.join(OPEN_SECONDS)
        if not answer:
            _mute[uri] = waiting
            raise RefusedError(f"libvirt takes a connection to {uri} and says nothing", MUTE)
        if isinstance(answer[0], Exception):
            raise answer[0]
        with contextlib.suppress(self.lib.libvirtError):  # drivers without a daemon know nothing of it
            answer[0].setKeepAlive(ALIVE_SECONDS, ALIVE_TRIES)
        return answer[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _where: object) -> None:
        with contextlib.suppress(self.lib.libvirtError):
            self.connection.close()
        if isinstance(error, self.lib.libvirtError):
            raise self._failed("it was asked something", error) from error

    @contextlib.contextmanager
    def saying(self, doing: str) -> Iterator[None]:
        """What libvirt refuses within the block becomes a LabError that says what was being done."""
        try:
            yield
        except self.lib.libvirtError as error:
            raise self._failed(doing, error) from error

    @staticmethod
    def _failed(doing: str, error: Exception) -> LabError:
        hint = MUTE if "keepalive" in str(error) else "`lab doctor` checks this machine"
        return LabError(f"libvirt failed while {doing}: {error}", hint)


def _attempt(lib: Any, uri: str) -> Any:
    try:
        return lib.open(uri)
    except lib.libvirtError as error:
        return error


def _run_events(lib: Any) -> None:
    """Once a process, before its first connection: without it no sign of life is sent or answered."""
    if not any(thread.is_alive() for thread in _events):
        lib.virEventRegisterDefaultImpl()
        _events.append(_background(lambda: _forever(lib.virEventRunDefaultImpl)))


def _forever(run: Callable[[], object]) -> None:
    while True:
        run()


def _background(do: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=do, daemon=True)  # never joined at the end: it may hang in libvirt
    thread.start()
    return thread
