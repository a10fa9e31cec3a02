"""HOST: a sealed network, tried by root in the guest with listeners on this host to hear what arrives."""

import contextlib
import json
import socket
import threading
import time
from typing import Any

import guest_lab
import other_machine
import pytest
from sink import ANOTHER_PROTOCOL, MARK, Sink

from labkit import network_gate, snapshot
from labkit.guest import Hypervisor

SO_RCVBUFFORCE = 33  # linux/socket.h; Python has no name for it


@pytest.fixture(scope="module")
def sealed_guest(lab, built):
    """The guest, resumed behind a sealed network and running; open and off again afterwards."""
    config = lab.config
    network_gate.switch(config, network_gate.SEALED)
    lab.resume()
    yield config
    snapshot.switch_off(lab.place)
    network_gate.switch(config, network_gate.OPEN)


@pytest.fixture(scope="module")
def sinks(sealed_guest):
    """What to reach: this host in the lab's network, this host elsewhere, another machine."""
    if reason := other_machine.why_not():
        pytest.skip(reason)
    at_home = sealed_guest.guest["lab_host_address"]
    with other_machine.connected() as other, contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(Sink(at_home)),
            stack.enter_context(Sink(other.here)),
            stack.enter_context(Sink(other.there, "ip", "netns", "exec", other.name)),
        ]


def reach_out(lab, sink: Sink, sender: str | None = None) -> set[str]:
    """Root in the guest tries every way to that sink. Returns the words that were sent."""
    guest = lab.config.guest
    own = guest["lab_guest_address"]
    neighbour_in_network = own.rsplit(".", 1)[0] + ".77"
    arguments = (MARK, sink.address, sink.tcp, own, sender or neighbour_in_network)
    arguments += (lab.config.run["run_gateway_port"], ANOTHER_PROTOCOL)
    return set(run_script(lab, "reach_out.py", *arguments))


def run_script(lab, name: str, *arguments: object) -> Any:
    """What a script of tests/guest/scripts printed as JSON, run in the guest as root."""
    said = lab.ssh(f"python3 - {' '.join(map(str, arguments))}", stdin=guest_lab.SCRIPTS / name)
    return json.loads(said.strip().splitlines()[-1])


def test_nothing_arrives_from_a_sealed_guest_and_everything_from_an_open_one(lab, sealed_guest, sinks):
    tried = [reach_out(lab, sink) for sink in sinks]
    arrived = [sink.heard() for sink in sinks]
    assert arrived == [{"udp-as-dhcp"}, set(), set()], "this host answers DHCP in the lab's network"
    network_gate.switch(sealed_guest, network_gate.OPEN)
    assert [reach_out(lab, sink) for sink in sinks] == tried and len(tried[0]) == 20
    assert [sink.heard() for sink in sinks] == tried
    network_gate.switch(sealed_guest, network_gate.SEALED)
    assert lab.lab("status", "--json").json["network"] == "sealed"


def test_a_refusal_that_is_addressed_to_another_machine_is_not_sent(lab, sealed_guest, sinks, monkeypatch):
    """It would carry the guest's packet to whom the packet names as its sender."""
    at_home, _, another = sinks
    reach_out(lab, at_home, sender=another.address)
    assert another.heard() == set()
    with monkeypatch.context() as patch:
        weak = network_gate.SEALED_RULES.replace('srcipaddr="{guest}" dstportstart="53"', 'dstportstart="53"')
        patch.setattr(network_gate, "SEALED_RULES", weak)
        network_gate.switch(sealed_guest, network_gate.SEALED)
        reach_out(lab, at_home, sender=another.address)
        heard = another.heard()
    network_gate.switch(sealed_guest, network_gate.SEALED)
    if not heard:
        pytest.skip("this host lets no false sender through, so nothing was shown")
    assert heard == {"dns-under-a-false-name", "dns-over-tcp-under-a-false-name"}


def test_frames_that_are_no_ipv4_reach_the_bridge_only_while_it_is_open(lab, sealed_guest):
    sent, arrived = sneaked(lab)
    assert arrived == set() and len(sent) == 4
    network_gate.switch(sealed_guest, network_gate.OPEN)
    sent, arrived = sneaked(lab)
    assert arrived == sent
    network_gate.switch(sealed_guest, network_gate.SEALED)


def sneaked(lab) -> tuple[set[str], set[str]]:
    """The guest's odd frames by name: those it sent, those that the host's side of the bridge heard."""
    with Hypervisor() as hypervisor:
        bridge = hypervisor.network(lab.config.name).bridgeName()
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20)  # SSH talks beside them
        listener.bind((bridge, 0))
        listener.settimeout(0.5)
        sent = set(run_script(lab, "odd_frames.py", MARK))
        heard, ends = set(), time.monotonic() + 2
        while time.monotonic() < ends:
            try:
                frame = listener.recv(2000)
            except TimeoutError:
                continue
            heard |= {name for name in sent if f"{MARK}{name}\0".encode() in frame + b"\0"}
    return sent, heard


def test_the_gateway_port_answers_and_a_name_server_refuses_at_once(lab, sealed_guest):
    host, port = sealed_guest.guest["lab_host_address"], sealed_guest.run["run_gateway_port"]
    with socket.create_server((host, port)) as gateway:
        greeter = threading.Thread(target=lambda: gateway.accept()[0].sendall(b"hello\n"), daemon=True)
        greeter.start()
        assert lab.ssh(f"timeout 30 head -1 < /dev/tcp/{host}/{port}").strip() == "hello"
        greeter.join(5)
    asked = run_script(lab, "ask_names.py", host, "192.0.2.53")
    assert len(asked) == 4 and set(asked.values()) == {"ConnectionRefusedError"}, asked
    said = lab.ssh("begin=$(date +%s); getent hosts example.org; sudo -n true; echo $(($(date +%s) - begin))")
    assert int(said.split()[-1]) < 18  # a dropped question would be waited for: 20 s for each sudo
