"""HOST: the connection to libvirt, and what its refusals are called. No other file imports the binding."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Self

from labkit.errors import LabError

URI = "qemu:///system"


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
            self.connection = self.lib.open(uri)
        except self.lib.libvirtError as error:
            if error.get_error_code() in _refusals(self.lib):
                raise RefusedError(
                    f"libvirt refuses the connection to {uri}: {error}",
                    "run the command as root; auth_unix_rw in /etc/libvirt/libvirtd.conf says who may",
                ) from error
            raise LabError(
                f"libvirt does not answer at {uri}: {error}", "`lab doctor` says how to start it"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    @contextlib.contextmanager
    def saying(self, doing: str) -> Iterator[None]:
        """What libvirt refuses within the block becomes a LabError that says what was being done."""
        try:
            yield
        except self.lib.libvirtError as error:
            raise self._failed(doing, error) from error

    @staticmethod
    def _failed(doing: str, error: Exception) -> LabError:
        return LabError(f"libvirt failed while {doing}: {error}", "`lab doctor` checks this machine")
