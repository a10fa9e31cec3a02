"""HOST: a sealed network, tried by root in the guest with listeners on this host to hear what arrives."""

import socket
import threading
import time

import pytest

from labkit import network_gate, snapshot
from labkit.guest import Hypervisor

# Frames that are no IPv4: two kinds of VLAN tag, IPv6, a made-up type.
RAW = """
import socket, struct
card = open('/sys/class/net/eth0/address').read().strip().replace(':', '')
def frame(kind, body): return b'\\xff' * 6 + bytes.fromhex(card) + struct.pack('!H', kind) + body
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
out.bind(('eth0', 0))
for kind in (0x8100, 0x88a8, 0x86dd, 0x1234):
    out.send(frame(kind, b'sneaked out' + b'\\0' * 60))
"""


@pytest.fixture(scope="module")
def sealed_guest(lab, built):
    """The guest, resumed behind a sealed network and running; open and off again afterwards."""
    config = lab.config
    network_gate.switch(config, network_gate.SEALED)
    lab.resume()
    yield config
    snapshot.switch_off(lab.place)
    network_gate.switch(config, network_gate.OPEN)


class Sinks:
    """Listeners on the host's address in the lab's network: TCP, UDP, and every frame on the bridge."""

    def __init__(self, host: str) -> None:
        self.tcp = socket.create_server((host, 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind((host, 0))
        for one in (self.tcp, self.udp):
            one.settimeout(0.2)

    def heard(self) -> list[str]:
        found = []
        for name, take in (("tcp", self.tcp.accept), ("udp", lambda: self.udp.recvfrom(100))):
            try:
                take()
                found.append(name)
            except OSError:
                continue
        return found

    def close(self) -> None:
        self.tcp.close()
        self.udp.close()


@pytest.fixture
def sinks(sealed_guest):
    made = Sinks(sealed_guest.guest["lab_host_address"])
    yield made
    made.close()


def attempts(host: str, sinks: Sinks) -> str:
    """Shell for root in the guest: tries TCP (also from port 22 and 8421), UDP, ping; prints nothing."""
    tcp, udp = sinks.tcp.getsockname()[1], sinks.udp.getsockname()[1]
    from_port = (
        "import socket; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1);"
        " s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1);"
        " s.bind(('', {0})); s.settimeout(2); s.connect(('" + host + f"', {tcp}))"
    )
    return (
        f"timeout 2 bash -c ': > /dev/tcp/{host}/{tcp}'; echo x > /dev/udp/{host}/{udp};"
        f' python3 -c "{from_port.format(68)}"; python3 -c "{from_port.format(8431)}";'
        f" ping -c1 -W1 {host} && echo PONG; true"
    )


def test_nothing_arrives_from_a_sealed_guest_and_everything_from_an_open_one(lab, sealed_guest, sinks):
    host = sealed_guest.guest["lab_host_address"]
    said = lab.ssh(attempts(host, sinks))
    assert sinks.heard() == [] and "PONG" not in said
    network_gate.switch(sealed_guest, network_gate.OPEN)
    said = lab.ssh(attempts(host, sinks))
    assert sinks.heard() == ["tcp", "udp"] and "PONG" in said
    network_gate.switch(sealed_guest, network_gate.SEALED)
    assert lab.lab("status", "--json").json["network"] == "sealed"


def test_frames_that_are_no_ipv4_reach_the_bridge_only_while_it_is_open(lab, sealed_guest):
    assert sneaked(lab) == 0
    network_gate.switch(sealed_guest, network_gate.OPEN)
    assert sneaked(lab) > 0
    network_gate.switch(sealed_guest, network_gate.SEALED)


def sneaked(lab) -> int:
    """How many of the guest's odd frames the host's side of the bridge hears."""
    with Hypervisor() as hypervisor:
        bridge = hypervisor.network(lab.config.name).bridgeName()
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as listener:
        listener.bind((bridge, 0))
        listener.settimeout(0.5)
        lab.ssh("python3 - <<'END'\n" + RAW + "END")
        heard, ends = 0, time.monotonic() + 2
        while time.monotonic() < ends:
            try:
                heard += b"sneaked out" in listener.recv(2000)
            except TimeoutError:
                continue
    return heard


def test_the_gateway_port_answers_and_a_name_server_refuses_at_once(lab, sealed_guest):
    host, port = sealed_guest.guest["lab_host_address"], sealed_guest.run["run_gateway_port"]
    with socket.create_server((host, port)) as gateway:
        greeter = threading.Thread(target=lambda: gateway.accept()[0].sendall(b"hello\n"), daemon=True)
        greeter.start()
        assert lab.ssh(f"timeout 5 head -1 < /dev/tcp/{host}/{port}").strip() == "hello"
        greeter.join(5)
    said = lab.ssh("begin=$(date +%s); getent hosts example.org; sudo -n true; echo $(($(date +%s) - begin))")
    assert int(said.split()[-1]) < 10  # a dropped question would be waited for: 20 s for each sudo
