"""HOST: what the guest's network card may send and receive: one libvirt filter a lab, switched live.

`open`: no rule. `sealed`: the gateway's port, DHCP and this host's SSH; a name server is refused at once,
since an answer that never comes makes every sudo wait 20 s. It is the host's: the guest can't touch it.
"""

from __future__ import annotations

import secrets
import socket
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

from labkit import ownership, state
from labkit.config import Lab
from labkit.errors import EVIDENCE, LabError
from labkit.guest import Hypervisor
from labkit.ssh import Shell

OPEN, SEALED = "open", "sealed"
MODES = (OPEN, SEALED)
CHANGED = "changed by hand"
# Rules about IP see a bridge's frames only where the kernel hands them over.
BRIDGE_SWITCH = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
PROBE_SECONDS = 3

# First the Ethernet frames (IPv6, VLAN tags and all else fall through to the drop), then what is in IPv4.
SEALED_RULES = """
<rule action="accept" direction="inout" priority="-500"><mac protocolid="arp"/></rule>
<rule action="accept" direction="inout" priority="-500"><mac protocolid="ipv4"/></rule>
<rule action="drop" direction="inout" priority="1000"/>
<rule action="accept" direction="out" priority="100">
  <tcp srcipaddr="{guest}" dstipaddr="{host}" dstportstart="{port}"/></rule>
<rule action="accept" direction="in" priority="100">
  <tcp srcipaddr="{host}" dstipaddr="{guest}" dstportstart="22"/></rule>
<rule action="accept" direction="out" priority="100"><udp srcportstart="68" dstportstart="67"/></rule>
<rule action="accept" direction="in" priority="100">
  <udp srcipaddr="{host}" srcportstart="67" dstportstart="68"/></rule>
<rule action="reject" direction="out" priority="200"><udp dstportstart="53"/></rule>
<rule action="reject" direction="out" priority="200"><tcp dstportstart="53"/></rule>
<rule action="drop" direction="inout" priority="500"><all/></rule>
"""


def filter_xml(name: str, rules: str = "") -> str:
    """A filter's definition; without rules it lets everything pass."""
    return f'<filter name="{name}" chain="root">{rules}</filter>'


def rules_of(lab: Lab, mode: str) -> str:
    if mode == OPEN:
        return ""
    return SEALED_RULES.format(
        guest=lab.address, host=lab.guest["lab_host_address"], port=lab.run["run_gateway_port"]
    )


def switch(lab: Lab, mode: str) -> bool:
    """Put the filter in that mode, at once and also for a guest that runs. Returns True when it was another.

    Raises LabError: a filter of that name that is not ours, or a kernel that would not ask the rules.
    """
    if mode == SEALED:
        demand_bridge_is_asked()
    with Hypervisor() as hypervisor:
        ownership.refuse_foreign(hypervisor, lab.name, lab.dir)
        uuid = ownership.claim(lab.dir)["filter"]
        changed = mode_now(lab, hypervisor) != mode
        hypervisor.ensure_filter(lab.name, filter_xml(lab.name, rules_of(lab, mode)), uuid)
    state.update(lab.dir, network=mode)
    return changed


def mode_now(lab: Lab, hypervisor: Hypervisor) -> str:
    """The mode the filter is in, as libvirt has it: open (also where there is none), sealed, or CHANGED."""
    found = hypervisor.filter(lab.name)
    if found is None:
        return OPEN
    rules = _rules(found.XMLDesc(0))
    fitting = (mode for mode in MODES if _rules(filter_xml(lab.name, rules_of(lab, mode))) == rules)
    return next(fitting, CHANGED)


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
