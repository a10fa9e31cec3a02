"""A libvirtd on a socket of its own that speaks libvirt's protocol (XDR) up to a call, and then no more."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

REMOTE = 0x20008086  # the program of ordinary calls; keepalive has another
OPEN, LOOKUP_DOMAIN, SUPPORTS_FEATURE, AUTH_LIST = 1, 23, 60, 66
ANSWERS = {AUTH_LIST: struct.pack(">Ii", 1, 0), SUPPORTS_FEATURE: struct.pack(">i", 1)}
HEAD = struct.Struct(">IIIiiIi")  # length, program, version, procedure, type, serial, status


@contextlib.contextmanager
def listening(path: Path, mute_at: int) -> Iterator[str]:
    """The URI of one that answers every call but `mute_at`, and keepalive never."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        threading.Thread(target=_accept, args=(server, mute_at), daemon=True).start()
        yield f"qemu+unix:///system?mode=direct&socket={path}"


def _accept(server: socket.socket, mute_at: int) -> None:
    with contextlib.suppress(OSError):  # closed at the end
        while True:
            client = server.accept()[0]
            threading.Thread(target=_serve, args=(client, mute_at), daemon=True).start()


def _serve(client: socket.socket, mute_at: int) -> None:
    calls = client.makefile("rb")
    with contextlib.suppress(OSError):
        while head := calls.read(HEAD.size):
            length, program, version, call, _, serial, _ = HEAD.unpack(head)
            calls.read(length - HEAD.size)
            if program == REMOTE and call != mute_at:
                answer = ANSWERS.get(call, b"")
                client.sendall(
                    HEAD.pack(HEAD.size + len(answer), program, version, call, 1, serial, 0) + answer
                )
