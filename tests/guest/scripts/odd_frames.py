"""GUEST: as root: sends Ethernet frames that carry no IPv4, each with a word; prints the words as JSON.

usage: python3 - MARK
"""

import json
import socket
import struct
import sys
from pathlib import Path

MARK, TIMES = sys.argv[1], 3
CARD = bytes.fromhex(Path("/sys/class/net/eth0/address").read_text().strip().replace(":", ""))
EVERYBODY = b"\xff" * 6
LINK_LOCAL, ALL_NODES = (socket.inet_pton(socket.AF_INET6, name) for name in ("fe80::5", "ff02::1"))


def ipv6(word):
    datagram = struct.pack("!HHHH", 4000, 4000, 8 + len(word), 0) + word
    return struct.pack("!IHBB", 6 << 28, len(datagram), 17, 64) + LINK_LOCAL + ALL_NODES + datagram


FRAMES = {
    "vlan": (0x8100, lambda word: struct.pack("!HH", 5, 0x0800) + word),
    "vlan-in-vlan": (0x88A8, lambda word: struct.pack("!HHHH", 5, 0x8100, 6, 0x0800) + word),
    "ipv6": (0x86DD, ipv6),
    "made-up": (0x1234, lambda word: word),
}

with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
    out.bind(("eth0", 0))
    for name, (kind, body) in FRAMES.items():
        for _ in range(TIMES):
            frame = EVERYBODY + CARD + struct.pack("!H", kind) + body(f"{MARK}{name}".encode())
            out.send(frame.ljust(60, b"\0"))
print(json.dumps(list(FRAMES)))
