"""TESTS: the command line's SSH against a real paramiko server on loopback: keys pinned, waits bounded."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
import time
from pathlib import Path

import paramiko
import pytest

from labkit.errors import UNREACHABLE, LabError
from labkit.ssh import Shell


class Guest(paramiko.ServerInterface):
    """Lets root in by one key and answers `echo`, `fail`, `drip` and `hang`."""

    def __init__(self, client_key: paramiko.PKey) -> None:
        self.client_key = client_key

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        known = username == "root" and key == self.client_key
        return paramiko.AUTH_SUCCESSFUL if known else paramiko.AUTH_FAILED

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        # A little later: a channel that closes before the request is answered looks like a refusal.
        threading.Timer(0.3, self.answer, (channel, command.decode())).start()
        return True

    @staticmethod
    def answer(channel: paramiko.Channel, command: str) -> None:
        if command == "hang":
            return
        if command == "drip":
            with contextlib.suppress(OSError):
                while channel.send(b".") and not channel.closed:
                    time.sleep(0.1)
            return
        channel.sendall(command.removeprefix("echo ").encode() + b"\xff\n")
        channel.send_exit_status(3 if command == "fail" else 0)
        with contextlib.suppress(EOFError):  # the client was quicker to hang up
            channel.close()


def client_key(folder: Path) -> paramiko.PKey:
    """Made as the domain role makes it."""
    path = folder / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return paramiko.Ed25519Key(filename=str(path))


def new_key() -> paramiko.PKey:
    return paramiko.ECDSAKey.generate()


@pytest.fixture
def keys(tmp_path):
    """The lab's keys folder with a client key; `pin` writes known_hosts."""
    client = client_key(tmp_path)

    def pin(port: int, host_key: paramiko.PKey) -> None:
        line = f"[127.0.0.1]:{port} {host_key.get_name()} {host_key.get_base64()}\n"
        (tmp_path / "known_hosts").write_text(line)

    return tmp_path, client, pin


@pytest.fixture
def server(keys):
    """A server with a host key of its own; yields (port, host key)."""
    host_key, listener = new_key(), socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                connection, _ = listener.accept()
                transport = paramiko.Transport(connection)
                transport.add_server_key(host_key)
                transport.start_server(server=Guest(keys[1]))

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1], host_key
    over.set()
    listener.close()


@pytest.fixture
def shell(keys, server):
    folder, _, pin = keys
    pin(*server)
    with Shell("127.0.0.1", folder, seconds=20, port=server[0]) as connected:
        yield connected


def test_a_command_gives_its_exit_code_and_its_output_whatever_bytes_it_has(shell):
    assert shell.run("echo hello") == (0, "hello\ufffd\n")
    assert shell.run("fail")[0] == 3


@pytest.mark.parametrize("command", ["hang", "drip"])
def test_a_command_that_hangs_or_drips_is_given_up_within_its_bound(shell, command):
    started = time.monotonic()
    with pytest.raises(LabError, match="did not finish a command within 1 s") as caught:
        shell.run(command, seconds=1)
    assert caught.value.code == UNREACHABLE and time.monotonic() - started < 30


def test_a_connection_that_breaks_off_is_an_error_in_words(shell):
    shell.run("echo before")
    shell.client.get_transport().close()
    with pytest.raises(LabError, match="broke the connection off"):
        shell.run("echo after")


def test_a_stream_brings_the_bytes_as_they_are(shell):
    assert shell.stream("echo raw").read() == b"raw\xff\n"


def test_another_host_key_is_refused_at_once_and_in_words(keys, server):
    folder, _, pin = keys
    pin(server[0], new_key())
    started = time.monotonic()
    with pytest.raises(LabError, match="shows another host key") as caught:
        Shell("127.0.0.1", folder, seconds=60, port=server[0])
    assert "not the guest you made" in caught.value.hint
    assert time.monotonic() - started < 40


def test_a_host_that_is_not_pinned_gets_no_connection(keys, server):
    folder, _, _ = keys
    (folder / "known_hosts").write_text("")
    with pytest.raises(LabError, match="not found in known_hosts"):
        Shell("127.0.0.1", folder, seconds=0.5, port=server[0])


def test_a_key_that_the_guest_does_not_know_is_given_up_within_its_bound(keys, server):
    folder, _, pin = keys
    pin(*server)
    for file in folder.glob("id_ed25519*"):
        file.unlink()
    client_key(folder)
    with pytest.raises(LabError, match="does not answer over SSH: Authentication failed"):
        Shell("127.0.0.1", folder, seconds=0.5, port=server[0])


def test_a_guest_that_does_not_answer_is_given_up_within_its_bound(keys, free_port):
    folder, _, pin = keys
    pin(free_port, new_key())
    started = time.monotonic()
    with pytest.raises(LabError, match="the guest at 127.0.0.1 does not answer over SSH") as caught:
        Shell("127.0.0.1", folder, seconds=0.5, port=free_port)
    assert caught.value.code == UNREACHABLE and "lab status" in caught.value.hint
    assert time.monotonic() - started < 30


def test_missing_keys_are_said_with_what_makes_them(tmp_path):
    with pytest.raises(LabError, match="keys can't be read") as caught:
        Shell("127.0.0.1", tmp_path)
    assert "lab up" in caught.value.hint
