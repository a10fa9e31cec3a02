"""TESTS: waiting for a guest that boots: one that stands still is reset, one that works or answers is not."""

import contextlib
import socket

import pytest

from labkit import boot
from labkit.errors import UNREACHABLE, LabError


class Guest:
    """A domain whose QEMU uses `cores` of a core; after `resets_needed` resets its sshd answers at `port`."""

    def __init__(self, cores: float, port: int, resets_needed: int = 0, is_on: bool = True) -> None:
        self.cores, self.port, self.is_on = cores, port, is_on
        self.clock, self.resets, self.resets_needed = 0.0, 0, resets_needed
        self.sshd: socket.socket | None = None
        self._answer_if_due()

    def info(self) -> list[int]:
        return [1, 0, 0, 2, int(self.clock * self.cores * 1e9)]

    def isActive(self) -> bool:  # noqa: N802  libvirt's name
        return self.is_on

    def reset(self) -> None:
        self.resets += 1
        self._answer_if_due()

    def _answer_if_due(self) -> None:
        if self.resets == self.resets_needed:
            self.sshd = socket.create_server(("127.0.0.1", self.port))

    # What `boot.wait` asks of the connection and of the clock.
    def known(self, _name: str) -> "Guest":
        return self

    def saying(self, _doing: str) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext()

    def monotonic(self) -> float:
        return self.clock

    def sleep(self, seconds: float) -> None:
        self.clock += seconds


@pytest.fixture
def waited(monkeypatch, free_port):
    """Waits for a guest under its own clock; returns (resets, seconds)."""

    def wait(seconds: float = 900, **kind: object) -> tuple[int, float]:
        guest = Guest(port=free_port, **kind)
        monkeypatch.setattr(boot, "time", guest)
        try:
            return boot.wait(guest, "unit", "127.0.0.1", seconds, free_port), guest.clock
        finally:
            if guest.sshd:
                guest.sshd.close()

    return wait


def test_a_guest_that_answers_is_not_waited_for(waited):
    assert waited(cores=0.0) == (0, 0.0)


def test_a_guest_that_stands_still_is_reset_once_it_did_so_for_two_minutes(waited):
    resets, seconds = waited(cores=0.03, resets_needed=1)
    assert resets == 1 and boot.STILL_SECONDS < seconds < boot.STILL_SECONDS + 5


def test_it_is_reset_twice_and_then_only_waited_for(waited):
    assert waited(cores=0.0, resets_needed=2)[0] == 2
    with pytest.raises(LabError, match="did not come up within 900 s"):
        waited(cores=0.0, resets_needed=3)


def test_a_guest_that_works_is_never_reset(waited):
    with pytest.raises(LabError, match="did not come up within 900 s") as caught:
        waited(cores=1.0, resets_needed=1)
    assert caught.value.code == UNREACHABLE


def test_a_guest_that_goes_off_ends_the_wait(waited):
    with pytest.raises(LabError, match="did not come up"):
        waited(cores=0.0, resets_needed=1, is_on=False)
