"""HOST: one guest for all guest tests, made on first use and removed at the end, whatever happened between.

Files run in the order of their names. Each fixture makes what it stands for when a test is run alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import guest_lab
import pytest

from labkit import host

SESSION_MINUTES = "4"  # its first fifth has the pages: 10 s here, 45 s on a machine five times as slow
# What a failed run leaves to look at: file below the lab's folder, and how many of its last lines.
TRACES = (("console.log", 30), ("receipt.json", 60), ("gateway/*/gateway.log", 20))


def pytest_configure() -> None:
    """A CI that ends us sends SIGTERM, and a shell's `&` ignores Ctrl-C: both must remove the guest."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)


@pytest.fixture(scope="session")
def lab(request):
    if os.geteuid() != 0:
        pytest.exit("the guest tests make a virtual machine and want root: sudo make test-guest", 3)
    with _alone():
        found = guest_lab.GuestLab()
        found.write_files()
        host.ensure_libvirt()
        if not guest_lab.KEEP:
            _remove_leftovers(found)
        try:
            yield found
        finally:
            if request.session.testsfailed:
                _show_traces(found)
            if not guest_lab.KEEP:
                _remove(found)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """A second run on this host would take the first one's guest for a leftover."""
    with open(guest_lab.LOCK, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pytest.exit("other guest tests are running on this machine: wait until they are over", 3)
        yield


def _remove_leftovers(lab: guest_lab.GuestLab) -> None:
    """A run that was killed leaves its guest, also the stranger that a test defined."""
    guest_lab.remove_stranger()
    lab.lab("down", "--discard")
    shutil.rmtree(lab.runs)
    lab.runs.mkdir()


def _remove(lab: guest_lab.GuestLab) -> None:
    guest_lab.remove_stranger()
    if lab.lab("down", "--discard", code=None).code == 0:
        shutil.rmtree(guest_lab.STATE)


def _show_traces(lab: guest_lab.GuestLab) -> None:
    lab.lab("status", "--json", code=None)
    for pattern, lines in TRACES:
        for path in sorted(lab.config.dir.glob(pattern)):
            lab.say(f"--- the end of {path}")
            for line in path.read_text(errors="replace").splitlines()[-lines:]:
                lab.say("  " + line)


@pytest.fixture(scope="session")
def nothing(lab):
    """The lab before `lab up`; such tests are passed over where a guest was kept."""
    if lab.config.dir.exists():
        pytest.skip("LAB_TEST_KEEP kept a guest")
    return lab


@pytest.fixture(scope="session")
def built(lab):
    """What `lab up --json` answered; the guest has a verified snapshot and is off."""
    return lab.lab("up", "--json", seconds=3000).json


@dataclass(frozen=True)
class Run:
    """A session in the guest. token: the run's, as the guest has it."""

    run_id: str
    gateway: Path
    token: str


@pytest.fixture(scope="session")
def started(lab, built):
    """A session that runs without us, and whose first rows have come."""
    words = ("run", "--model", "rehearsal", "--minutes", SESSION_MINUTES, "--discard", "--detach", "--json")
    run_id = lab.lab(*words).json["run"]
    settings = lab.ssh("cat /etc/lab-harness/run.json")
    lab.until_heard()
    return Run(run_id, lab.config.gateway_dir / run_id, json.loads(settings)["token"])


@pytest.fixture(scope="session")
def sealed(lab, started):
    """The summary that `lab watch` printed when that session was over."""
    return lab.lab("watch", "--json").json


@pytest.fixture(scope="session")
def collected(lab, started, sealed):
    """The folder of that run below runs/."""
    folder = Path(lab.lab("collect", "--json").json["folder"])
    assert folder == lab.runs / started.run_id
    return folder
