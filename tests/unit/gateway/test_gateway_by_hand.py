"""TESTS: `lab gateway FOLDER` by a person: how it is ended, that there is one already, where its page is."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from descriptors import readable
from loopback import free_port, until

from labkit.gateway import pidfile
from labkit.gateway.page import access

ROOT = Path(__file__).parents[3]
SECONDS = 60  # Python and its packages load slowly on a busy machine
pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and terminals")


class ByHand:
    """A gateway in the foreground, as a shell starts it."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.children: list[subprocess.Popen] = []

    def begin(self, stdout: int = subprocess.DEVNULL, before: Callable | None = None) -> subprocess.Popen:
        child = subprocess.Popen(
            [sys.executable, "-m", "labkit", "gateway", str(self.folder)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=before,
        )
        self.children.append(child)
        return child

    def start(self, **how: object) -> subprocess.Popen:
        """Once it answers."""
        child = self.begin(**how)
        until(lambda: child.poll() is not None or self.answers(), SECONDS)
        assert child.poll() is None, child.stderr.read()
        return child

    def answers(self) -> bool:
        try:
            url = f"http://127.0.0.1:{self.port}/healthz"
            return httpx2.get(url, trust_env=False, timeout=5.0).status_code == 200
        except httpx2.TransportError:
            return False


@pytest.fixture
def by_hand(tmp_path, make_config) -> Iterator[ByHand]:
    folder = tmp_path / "run"
    folder.mkdir()
    config = make_config(page_bind="127.0.0.1", page_port=free_port())
    config.save(folder)
    made = ByHand(folder, config.port)
    yield made
    for child in made.children:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        child.communicate()


def ended_clean(folder: Path) -> bool:
    return (
        not (folder / pidfile.FILE_NAME).exists() and b'"stopped"' in (folder / "ledger.jsonl").read_bytes()
    )


@pytest.mark.usefixtures("usual_signals")
def test_ctrl_c_is_one_sentence_and_exit_code_130(by_hand):
    child = by_hand.start()
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=SECONDS)
    assert child.returncode == 130
    assert said.count("lab: interrupted: the gateway on") == 1 and "Traceback" not in said
    assert ended_clean(by_hand.folder)


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_closed_terminal_ends_it_as_cleanly_as_a_wish_to_end(by_hand, number):
    child = by_hand.start()
    child.send_signal(number)
    _, said = child.communicate(timeout=SECONDS)
    assert child.returncode == 0 and "Traceback" not in said
    assert ended_clean(by_hand.folder)


def test_under_nohup_a_closed_terminal_does_not_end_it(by_hand):
    child = by_hand.start(before=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    status = Path(f"/proc/{child.pid}/status")
    if not status.exists():
        pytest.skip("no /proc")
    (ignored,) = (line.split()[1] for line in status.read_text().splitlines() if line.startswith("SigIgn"))
    assert int(ignored, 16) >> (signal.SIGHUP - 1) & 1


def test_a_second_one_on_the_same_folder_is_told_of_the_first_and_not_to_end_it(by_hand):
    first = by_hand.start()
    second = by_hand.begin()
    _, said = second.communicate(timeout=SECONDS)
    assert second.returncode == 3
    assert f"a gateway (process {first.pid}) already runs on {by_hand.folder}" in said
    assert "in use" not in said and "end the program" not in said
    assert by_hand.answers() and pidfile.read(by_hand.folder) == first.pid


def test_on_a_terminal_it_prints_the_pages_address_with_the_token_and_no_log_has_it(by_hand):
    ours, theirs = os.openpty()
    child = by_hand.start(stdout=theirs)
    os.close(theirs)
    printed = os.read(ours, 4096) if readable(ours, SECONDS) else b""
    link = access.link(by_hand.folder)
    child.terminate()
    _, said = child.communicate(timeout=SECONDS)
    os.close(ours)
    assert printed.decode().strip() == f"the page of this run: {link}"
    assert link.partition("#")[2] not in said


def test_where_nobody_looks_the_token_stays_in_its_file_which_is_named(by_hand, tmp_path):
    with open(tmp_path / "out", "wb") as out:
        child = by_hand.start(stdout=out.fileno())
    until((by_hand.folder / access.FILE_NAME).exists)
    token = access.read(by_hand.folder)["token"]
    child.terminate()
    _, said = child.communicate(timeout=SECONDS)
    assert f"its token is in {by_hand.folder / access.FILE_NAME}" in said
    assert token not in said + (tmp_path / "out").read_text()
