"""HOST: the command line's own connections to the guest: pinned host key, the lab's own client key."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from labkit import late
from labkit.errors import UNREACHABLE, LabError

PORT = 22
MAX_OUTPUT_BYTES = 1 << 20


class Shell:
    """An SSH connection to the guest as root; a context manager.

    keys: folder with id_ed25519 and known_hosts. seconds: how long to keep trying.
    Raises LabError: unreachable when nothing answers, evidence-grade words when the host key is not ours.
    """

    def __init__(self, address: str, keys: Path, seconds: float = 30, port: int = PORT) -> None:
        import paramiko

        self._paramiko = paramiko
        self.address = address
        self.port = port
        self.client = paramiko.SSHClient()
        try:
            self.client.load_host_keys(str(keys / "known_hosts"))
        except OSError as error:
            raise LabError(
                f"the lab's keys can't be read: {keys / 'known_hosts'}: {error.strerror}",
                "`lab up` builds the guest and its keys",
            ) from error
        self.client.set_missing_host_key_policy(paramiko.RejectPolicy())
        self._connect(keys / "id_ed25519", seconds)

    def _connect(self, key: Path, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while True:
            try:
                self.client.connect(
                    self.address,
                    port=self.port,
                    username="root",
                    key_filename=str(key),
                    sock=_open_port(self.address, self.port, deadline),
                    look_for_keys=False,
                    allow_agent=False,
                    banner_timeout=20,
                    auth_timeout=30,
                    timeout=20,
                )
                return
            except self._paramiko.BadHostKeyException as error:
                raise LabError(
                    f"the machine at {self.address} shows another host key than this lab's guest",
                    "it is not the guest you made: `lab status` shows what runs, `lab revert` restarts it",
                    UNREACHABLE,
                ) from error
            except (self._paramiko.SSHException, OSError, EOFError) as error:
                if time.monotonic() > deadline:
                    reason = str(error) or type(error).__name__
                    raise LabError(
                        f"the guest at {self.address} does not answer over SSH: {reason}",
                        "`lab status` shows its state; its console log is in the lab's folder",
                        UNREACHABLE,
                    ) from error
                time.sleep(0.2)

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def run(self, command: str, seconds: float = 60) -> tuple[int, str]:
        """Run a command as root. Returns (exit code, standard output and error together)."""
        with self._answering(seconds), self._channel(seconds) as channel, _closed_after(channel, seconds):
            channel.set_combine_stderr(True)
            channel.exec_command(command)
            output = channel.makefile("rb").read(MAX_OUTPUT_BYTES)
            return channel.recv_exit_status(), output.decode(errors="replace")

    def stream(self, command: str, seconds: float = 600) -> BinaryIO:
        """Run a command as root and return its standard output as a binary file.

        seconds: how long a single read waits. Reading raises OSError when the guest breaks off.
        """
        with self._answering(seconds):
            channel = self._channel(seconds)
            with _closed_after(channel, seconds):
                channel.exec_command(command)
            return channel.makefile("rb")

    def _channel(self, seconds: float) -> Any:
        transport = self.client.get_transport()
        if transport is None:
            raise EOFError("the connection is closed")
        channel = transport.open_session(timeout=seconds)
        channel.settimeout(seconds)
        return channel

    @contextlib.contextmanager
    def _answering(self, seconds: float) -> Iterator[None]:
        ends = time.monotonic() + seconds
        try:
            yield
        except (self._paramiko.SSHException, OSError, EOFError) as error:
            is_late = isinstance(error, TimeoutError) or time.monotonic() >= ends
            what = (
                f"did not finish a command within {seconds:.0f} s" if is_late else "broke the connection off"
            )
            reason = "" if is_late else f": {error}"
            raise LabError(
                f"the guest at {self.address} {what}{reason}", "`lab status` shows its state", UNREACHABLE
            ) from error


@contextlib.contextmanager
def _closed_after(channel: Any, seconds: float) -> Iterator[None]:
    """TimeoutError when the block takes longer: paramiko waits without end for a mute or dripping guest."""
    with late.after(seconds, channel.close) as closed:
        try:
            yield
        except Exception as error:
            if closed.is_set():
                raise TimeoutError from error
            raise
    if closed.is_set():
        raise TimeoutError


def _open_port(address: str, port: int, deadline: float) -> socket.socket:
    """A TCP connection; tries again quickly, since a resumed guest answers within a second."""
    while True:
        try:
            return socket.create_connection((address, port), timeout=2)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
