"""HOST: hears what arrives at an address and says which word each packet carried; in a namespace too.

usage as a program: sink.py ADDRESS. Prints its ports; then answers each line with what arrived since.
"""

from __future__ import annotations

import json
import re
import selectors
import socket
import subprocess
import sys
import time

MARK = "lab-guest-was-here:"  # before each word: others talk to this host too
ANOTHER_PROTOCOL = 253  # for experiments (RFC 3692): neither TCP nor UDP nor ICMP
SETTLE_SECONDS = 0.5
_WORD = re.compile(re.escape(MARK.encode()) + rb"([a-z0-9-]+)")


class Sink:
    """A context manager. address: where it listens, on every port; tcp: one that takes connections."""

    def __init__(self, address: str, *prefix: str) -> None:
        """prefix: what the program runs under, such as `ip netns exec NAME`."""
        self.address = address
        words = [*prefix, sys.executable, __file__, address]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.tcp = json.loads(self._process.stdout.readline())

    def heard(self) -> set[str]:
        """The words that arrived since the last question."""
        time.sleep(SETTLE_SECONDS)
        self._process.stdin.write("?\n")
        self._process.stdin.flush()
        return set(json.loads(self._process.stdout.readline()))

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()  # it ends with its questions
        self._process.wait(10)


def raw(address: str, protocol: int) -> socket.socket:
    """Hears each packet of that protocol which is for the address, also for ports where nobody listens."""
    made = socket.socket(socket.AF_INET, socket.SOCK_RAW, protocol)
    made.bind((address, 0))
    return made


def main(address: str) -> None:
    tcp = socket.create_server((address, 0))
    protocols = (socket.IPPROTO_TCP, socket.IPPROTO_UDP, socket.IPPROTO_ICMP, ANOTHER_PROTOCOL)
    print(tcp.getsockname()[1], flush=True)
    selector, arrived = selectors.DefaultSelector(), set()
    for source in (tcp, sys.stdin, *(raw(address, protocol) for protocol in protocols)):
        selector.register(source, selectors.EVENT_READ)
    taken = []  # kept open: what a connection says is heard by the raw socket
    while True:
        ready = [key.fileobj for key, _ in selector.select()]
        for source in ready:
            if source is tcp:
                taken.append(tcp.accept()[0])
            elif source is not sys.stdin:
                arrived |= {word.decode() for word in _WORD.findall(source.recv(70_000))}
        if ready == [sys.stdin]:  # all that came before the question was heard
            if not sys.stdin.readline():
                return
            print(json.dumps(sorted(arrived)), flush=True)
            arrived.clear()


if __name__ == "__main__":
    main(sys.argv[1])
