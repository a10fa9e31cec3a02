"""HOST: what the guest's network card may send and receive, switched live.

`open`: no filter. `sealed`: the gateway's port, DHCP and this host's SSH; a name server is refused at once,
since an answer that never comes makes every sudo wait 20 s. It is the host's: the guest can't touch it.
"""

from __future__ import annotations

import secrets
import socket
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

from labkit import card_filter, ownership, state
from labkit.config import Lab
from labkit.errors import EVIDENCE, LabError
from labkit.guest import Hypervisor
from labkit.ssh import Shell

OPEN, SEALED = "open", "sealed"
MODES = (OPEN, SEALED)
CHANGED = "changed by hand"
SAID = {
    OPEN: "network open: the guest reaches what this host reaches; `--network sealed` shuts it off",
    SEALED: "network sealed: the guest reaches the gateway alone",
}
# Rules about IP see a bridge's frames only where the kernel hands them over.
BRIDGE_SWITCH = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
PROBE_SECONDS = 3

# First the Ethernet frames (IPv6, VLAN tags and all else fall through to the drop), then what is in IPv4.
# What is let out names its destination. A refusal goes to whom a packet names as its sender, with the packet
# in it: only the guest's own address gets one, or root in the guest could send through refusals.
SEALED_RULES = """
<rule action="accept" direction="inout" priority="-500"><mac protocolid="arp"/></rule>
<rule action="accept" direction="inout" priority="-500"><mac protocolid="ipv4"/></rule>
<rule action="drop" direction="inout" priority="1000"/>
<rule action="accept" direction="out" priority="100">
  <tcp srcipaddr="{guest}" dstipaddr="{host}" dstportstart="{port}"/></rule>
<rule action="accept" direction="in" priority="100">
  <tcp srcipaddr="{host}" dstipaddr="{guest}" dstportstart="22"/></rule>
<rule action="accept" direction="out" priority="100">
  <udp dstipaddr="255.255.255.255" srcportstart="68" dstportstart="67"/></rule>
<rule action="accept" direction="out" priority="100">
  <udp srcipaddr="{guest}" dstipaddr="{host}" srcportstart="68" dstportstart="67"/></rule>
<rule action="accept" direction="in" priority="100">
  <udp srcipaddr="{host}" srcportstart="67" dstportstart="68"/></rule>
<rule action="reject" direction="out" priority="200"><udp srcipaddr="{guest}" dstportstart="53"/></rule>
<rule action="reject" direction="out" priority="200"><tcp srcipaddr="{guest}" dstportstart="53"/></rule>
<rule action="drop" direction="inout" priority="500"><all/></rule>
"""


def sealing_filter(lab: Lab) -> str:
    """The definition of the filter that seals this lab's card."""
    rules = SEALED_RULES.format(
        guest=lab.address, host=lab.guest["lab_host_address"], port=lab.run["run_gateway_port"]
    )
    return f'<filter name="{lab.name}" chain="root">{rules}</filter>'


def switch(lab: Lab, mode: str) -> bool:
    """Put the card into that mode, at once where the guest runs. Returns True when it was in another.

    Raises LabError: no guest, a filter of that name that is not ours, a kernel that would not ask the rules.
    """
    with Hypervisor() as hypervisor:
        changed = mode_now(lab, hypervisor) != mode
        _put(lab, hypervisor, mode, live=True)
    return changed


def at_next_start(lab: Lab, mode: str) -> None:
    """As `switch`, but a guest that runs keeps its mode to its end: one that is sealed is never opened."""
    with Hypervisor() as hypervisor:
        _put(lab, hypervisor, mode, live=False)


def _put(lab: Lab, hypervisor: Hypervisor, mode: str, live: bool) -> None:
    ownership.refuse_foreign(hypervisor, lab.name, lab.dir)
    if mode == SEALED:
        demand_bridge_is_asked()
        uuid = ownership.claim(lab.dir)["filter"]
        card_filter.define(hypervisor, lab.name, sealing_filter(lab), uuid)
    card_filter.put_behind(hypervisor, lab.name, lab.name if mode == SEALED else None, live)
    state.update(lab.dir, network=mode)


def mode_now(lab: Lab, hypervisor: Hypervisor) -> str:
    """The mode as libvirt has it: open (also where there is no guest), sealed, or CHANGED."""
    if hypervisor.domain(lab.name) is None or not (behind := card_filter.now(hypervisor, lab.name)):
        return OPEN
    found = hypervisor.filter(lab.name)
    if behind != lab.name or found is None:
        return CHANGED
    return SEALED if _rules(found.XMLDesc(0)) == _rules(sealing_filter(lab)) else CHANGED


def _rules(xml: str) -> Counter[tuple[object, ...]]:
    """The rules of a filter as a bag, so that order and layout do not matter."""
    bag: Counter[tuple[object, ...]] = Counter()
    for rule in ET.fromstring(xml).iter("rule"):
        inside = tuple((child.tag, tuple(sorted(child.attrib.items()))) for child in rule)
        bag[rule.get("action"), rule.get("direction"), rule.get("priority"), inside] += 1
    return bag


def demand_bridge_is_asked(switch_file: Path = BRIDGE_SWITCH) -> None:
    """LabError where the kernel does not show the rules what passes a bridge: they would hold nothing."""
    try:
        asked = switch_file.read_text().strip() == "1"
    except OSError:
        asked = False
    if not asked:
        raise LabError(
            "this kernel keeps a bridge's traffic from its packet filter, so the network can't be sealed",
            "`modprobe br_netfilter && sysctl net.bridge.bridge-nf-call-iptables=1`, then repeat",
        )


def prove_sealed(lab: Lab) -> None:
    """Let the running guest try to reach a listener of this host; LabError (evidence) when it gets there."""
    host = lab.guest["lab_host_address"]
    with socket.create_server((host, 0)) as listener, Shell(lab.address, lab.keys_dir) as shell:
        port = listener.getsockname()[1]
        word = f"reached-{secrets.token_hex(4)}"
        _, said = shell.run(f"timeout {PROBE_SECONDS} bash -c ': > /dev/tcp/{host}/{port}' && echo {word}")
        listener.settimeout(0)
        try:
            listener.accept()[0].close()
            arrived = True
        except OSError:
            arrived = False
    if arrived or word in said:
        raise LabError(
            f"the guest reached port {port} of this host although its network is to be sealed",
            "`lab network open` if that is meant; else look at `iptables -S` and `ebtables -t nat -L`",
            EVIDENCE,
        )
