"""HOST: a sealed network, tried by root in the guest with listeners on this host to hear what arrives."""

import contextlib
import socket
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest
from free_network import free_network
from sink import MARK, Sink

from labkit import network_gate, snapshot
from labkit.guest import Hypervisor

NEIGHBOUR = "labtest-neighbour"
SO_RCVBUFFORCE = 33  # linux/socket.h; Python has no name for it
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


@contextlib.contextmanager
def neighbour() -> Iterator[tuple[str, str]]:
    """A network beside this host with a machine in it, for the block. Yields this host's address, its."""
    found = free_network(200)
    ours, theirs = found["lab_host_address"], found["lab_guest_address"]
    inside = f"ip netns exec {NEIGHBOUR}"
    commands = (
        f"ip netns add {NEIGHBOUR}",
        f"ip link add labt-host type veth peer name labt-far netns {NEIGHBOUR}",
        f"ip addr add {ours}/24 dev labt-host",
        "ip link set labt-host up",
        f"{inside} ip addr add {theirs}/24 dev labt-far",
        f"{inside} ip link set labt-far up",
        f"{inside} ip link set lo up",
        f"{inside} ip route add default via {ours}",
    )
    subprocess.run(["ip", "netns", "delete", NEIGHBOUR], capture_output=True)  # of a run that was killed
    try:
        for command in commands:
            subprocess.run(command.split(), check=True)
        yield ours, theirs
    finally:
        subprocess.run(["ip", "netns", "delete", NEIGHBOUR], check=True)


@pytest.fixture(scope="module")
def sinks(sealed_guest):
    """What to reach: this host in the lab's network, this host elsewhere, another machine."""
    at_home = sealed_guest.guest["lab_host_address"]
    with neighbour() as (elsewhere, another), contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(Sink(at_home)),
            stack.enter_context(Sink(elsewhere)),
            stack.enter_context(Sink(another, "ip", "netns", "exec", NEIGHBOUR)),
        ]


def attempts(sink: Sink) -> str:
    """Shell for root in the guest: tries TCP (also from ports that the rules name), UDP and ping."""
    from_port = (
        "import socket; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1);"
        " s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1);"
        f" s.bind(('', {{}})); s.settimeout(3); s.connect(('{sink.address}', {sink.tcp}))"
    )
    to = sink.address
    return (
        f"timeout 3 bash -c ': > /dev/tcp/{to}/{sink.tcp}'; bash -c 'echo x > /dev/udp/{to}/{sink.udp}';"
        f' python3 -c "{from_port.format(68)}"; python3 -c "{from_port.format(8431)}";'
        f" ping -c1 -W3 -p {MARK.hex()} {to} && echo PONG; true"
    )


def test_nothing_arrives_from_a_sealed_guest_and_everything_from_an_open_one(lab, sealed_guest, sinks):
    said = [lab.ssh(attempts(sink)) for sink in sinks]
    assert [sink.heard() for sink in sinks] == [set(), set(), set()] and "PONG" not in "".join(said)
    network_gate.switch(sealed_guest, network_gate.OPEN)
    said = [lab.ssh(attempts(sink)) for sink in sinks]
    assert [sink.heard() for sink in sinks] == 3 * [{"tcp", "udp", "ping"}]
    assert all("PONG" in answer for answer in said)
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
        listener.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20)  # SSH talks beside them
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
        assert lab.ssh(f"timeout 30 head -1 < /dev/tcp/{host}/{port}").strip() == "hello"
        greeter.join(5)
    said = lab.ssh("begin=$(date +%s); getent hosts example.org; sudo -n true; echo $(($(date +%s) - begin))")
    assert int(said.split()[-1]) < 18  # a dropped question would be waited for: 20 s for each sudo
