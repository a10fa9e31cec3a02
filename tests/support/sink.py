"""HOST: hears TCP, UDP and marked pings that arrive at an address; as a program also in a network namespace.

usage as a program: sink.py ADDRESS. Prints its ports; then answers each line with what arrived since.
"""

from __future__ import annotations

import json
import selectors
import socket
import subprocess
import sys
import time

MARK = b"from-the-lab-gst"  # what a ping is filled with: others ping this host too
SETTLE_SECONDS = 0.5


class Sink:
    """A context manager. address: where it listens; tcp, udp: its ports."""

    def __init__(self, address: str, *prefix: str) -> None:
        """prefix: what the program runs under, such as `ip netns exec NAME`."""
        self.address = address
        words = [*prefix, sys.executable, __file__, address]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.tcp, self.udp = json.loads(self._process.stdout.readline())

    def heard(self) -> set[str]:
        """What arrived since the last question, as words: tcp, udp, ping."""
        time.sleep(SETTLE_SECONDS)
        self._process.stdin.write("?\n")
        self._process.stdin.flush()
        return set(json.loads(self._process.stdout.readline()))

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()  # it ends with its questions
        self._process.wait(10)


def main(address: str) -> None:
    tcp = socket.create_server((address, 0))
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind((address, 0))
    pings = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    print(json.dumps([tcp.getsockname()[1], udp.getsockname()[1]]), flush=True)
    selector, arrived = selectors.DefaultSelector(), set()
    for source in (tcp, udp, pings, sys.stdin):
        selector.register(source, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is tcp:
                tcp.accept()[0].close()
                arrived.add("tcp")
            elif key.fileobj is udp:
                udp.recv(100)
                arrived.add("udp")
            elif key.fileobj is pings:
                if MARK in pings.recv(2000):
                    arrived.add("ping")
            elif sys.stdin.readline():
                print(json.dumps(sorted(arrived)), flush=True)
                arrived.clear()
            else:
                return


if __name__ == "__main__":
    main(sys.argv[1])
