"""TESTS: a libvirt that takes a connection and stands still is given up in words, whatever call it is in."""

from __future__ import annotations

import subprocess
import sys
import time

import mute_libvirt
import pytest

from labkit import libvirt_connection, presence
from labkit.errors import NOT_READY, LabError
from labkit.guest import Hypervisor
from labkit.libvirt_connection import RefusedError


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(libvirt_connection, "ALIVE_SECONDS", 1)
    monkeypatch.setattr(libvirt_connection, "ALIVE_TRIES", 2)


@pytest.mark.parametrize("call", [mute_libvirt.AUTH_LIST, mute_libvirt.OPEN], ids=["at once", "opening"])
def test_a_libvirt_that_never_says_a_word_is_given_up_and_not_started_again(tmp_path, monkeypatch, call):
    monkeypatch.setattr(libvirt_connection, "OPEN_SECONDS", 0.5)
    with mute_libvirt.listening(tmp_path / "sock", call) as uri:
        for _ in range(
            2
        ):  # RefusedError: what it is raised as keeps `ensure_libvirt` from starting a second one
            with pytest.raises(RefusedError, match="takes a connection to .* and says nothing") as caught:
                Hypervisor(uri)
    assert caught.value.code == NOT_READY and "systemctl restart libvirtd" in caught.value.hint


def test_a_libvirt_that_stands_still_in_a_call_is_given_up_in_a_sentence(tmp_path):
    with (
        mute_libvirt.listening(tmp_path / "sock", mute_libvirt.LOOKUP_DOMAIN) as uri,
        pytest.raises(LabError, match="while looking up the domain unit: .*keepalive") as caught,
        Hypervisor(uri) as hypervisor,
    ):
        hypervisor.state("unit")
    assert "systemctl restart libvirtd" in caught.value.hint


def test_a_live_view_is_not_held_up_by_a_libvirt_that_stands_still(tmp_path, monkeypatch):
    """Its keys, its Ctrl-C and its events come from the same loop that asks whether the guest is there."""
    monkeypatch.setattr(libvirt_connection, "ALIVE_SECONDS", 30)
    with mute_libvirt.listening(tmp_path / "sock", mute_libvirt.LOOKUP_DOMAIN) as uri:
        monkeypatch.setattr(Hypervisor.__init__, "__defaults__", (uri,))
        watcher, began = presence.Watcher("unit", look_seconds=0), time.monotonic()
        assert [watcher.word() for _ in range(5)] == [""] * 5
        assert time.monotonic() - began < 30, "libvirt itself is given up after 90 seconds"


def test_what_libvirt_fails_with_outside_any_step_is_a_sentence_too(tmp_path):
    with (
        mute_libvirt.listening(tmp_path / "sock", -1) as uri,  # its answers make no sense
        pytest.raises(LabError, match="libvirt failed while"),
        Hypervisor(uri) as hypervisor,
    ):
        hypervisor.connection.getLibVersion()


def test_a_command_whose_libvirt_hangs_still_ends(tmp_path):
    """The thread that waits in libvirt's library is left behind when the process goes."""
    program = (
        "import sys\nfrom labkit import libvirt_connection\nfrom labkit.errors import LabError\n"
        "libvirt_connection.OPEN_SECONDS = 0.5\n"
        "try:\n    libvirt_connection.Connection(sys.argv[1])\n"
        "except LabError as error:\n    print(error.message)\n"
    )
    with mute_libvirt.listening(tmp_path / "sock", mute_libvirt.OPEN) as uri:
        ended = subprocess.run(
            [sys.executable, "-c", program, uri], capture_output=True, text=True, timeout=60
        )
    assert ended.returncode == 0 and "says nothing" in ended.stdout and ended.stderr == ""
