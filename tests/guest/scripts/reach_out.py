"""GUEST: as root: tries to reach an address in many ways; each try carries its own word. Prints them as JSON.

usage: python3 - MARK ADDRESS TCP-PORT OWN-ADDRESS FALSE-ADDRESS GATEWAY-PORT ANOTHER-PROTOCOL
Whether anything arrived is the listener's to say.
"""

import contextlib
import json
import socket
import struct
import sys

MARK, ADDRESS, OWN, FALSE = sys.argv[1], sys.argv[2], sys.argv[4], sys.argv[5]
TCP_PORT, GATEWAY_PORT, ANOTHER_PROTOCOL = int(sys.argv[3]), int(sys.argv[6]), int(sys.argv[7])
SECONDS, TIMES, SOME_PORT, SYN = 3, 3, 4999, 2
SSH, DNS, DHCP_SERVER, DHCP_CLIENT = 22, 53, 67, 68


def connection(word):
    with socket.create_connection((ADDRESS, TCP_PORT), timeout=SECONDS) as out:
        out.sendall(word)


def fragments(word):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        for _ in range(TIMES):
            with contextlib.suppress(ConnectionRefusedError):
                out.sendto(word + b" " * 4000, (ADDRESS, SOME_PORT))


def checksum(packet):
    packet += b"\0" * (len(packet) % 2)
    total = sum(struct.unpack(f"!{len(packet) // 2}H", packet))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def send(protocol, packet, sender):
    """The kernel fills in length and checksum of the header."""
    ends = socket.inet_aton(sender) + socket.inet_aton(ADDRESS)
    header = struct.pack("!BBHHHBBH", 0x45, 0, 0, 0, 0, 64, protocol, 0) + ends
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as out:
        for _ in range(TIMES):
            out.sendto(header + packet, (ADDRESS, 0))


def datagram(source, port, sender=OWN):
    def send_it(word):
        head = struct.pack("!HHHH", source, port, 8 + len(word), 0)  # 0: without a checksum
        send(socket.IPPROTO_UDP, head + word, sender)

    return send_it


def segment(source, port, sender=OWN):
    """The first segment of a connection, which may have something to say already."""

    def send_it(word):
        def head(found):
            return struct.pack("!HHIIBBHHH", source, port, 1, 0, 5 << 4, SYN, 8192, found, 0)

        ends = socket.inet_aton(sender) + socket.inet_aton(ADDRESS)
        pseudo = ends + struct.pack("!BBH", 0, socket.IPPROTO_TCP, 20 + len(word))
        send(socket.IPPROTO_TCP, head(checksum(pseudo + head(0) + word)) + word, sender)

    return send_it


def ping(word):
    def head(found):
        return struct.pack("!BBHHH", 8, 0, found, 7, 1)

    send(socket.IPPROTO_ICMP, head(checksum(head(0) + word)) + word, OWN)


WAYS = {
    "connection": connection,
    "udp": datagram(SOME_PORT, SOME_PORT),
    "udp-in-fragments": fragments,
    "udp-from-the-dhcp-port": datagram(DHCP_CLIENT, SOME_PORT),
    "udp-to-the-dhcp-port": datagram(SOME_PORT, DHCP_SERVER),
    "udp-as-dhcp": datagram(DHCP_CLIENT, DHCP_SERVER),
    "udp-to-the-gateways-port": datagram(SOME_PORT, GATEWAY_PORT),
    "dns": datagram(SOME_PORT, DNS),
    "udp-under-a-false-name": datagram(SOME_PORT, SOME_PORT, FALSE),
    "dns-under-a-false-name": datagram(SOME_PORT, DNS, FALSE),
    "tcp": segment(SOME_PORT, SOME_PORT),
    "tcp-from-the-dhcp-port": segment(DHCP_CLIENT, SOME_PORT),
    "tcp-from-the-gateways-port": segment(GATEWAY_PORT, SOME_PORT),
    "tcp-from-the-ssh-port": segment(SSH, SOME_PORT),
    "tcp-to-the-ssh-port": segment(SOME_PORT, SSH),
    "dns-over-tcp": segment(SOME_PORT, DNS),
    "tcp-under-a-false-name": segment(SOME_PORT, SOME_PORT, FALSE),
    "dns-over-tcp-under-a-false-name": segment(SOME_PORT, DNS, FALSE),
    "ping": ping,
    "another-protocol": lambda word: send(ANOTHER_PROTOCOL, word, OWN),
}

for name, reach_out in WAYS.items():
    with contextlib.suppress(OSError):
        reach_out(f"{MARK}{name}".encode())
print(json.dumps(list(WAYS)))
