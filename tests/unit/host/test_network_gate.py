"""TESTS: the network filter as text; that it holds is seen in a real guest."""

import xml.etree.ElementTree as ET
from types import SimpleNamespace

import pytest

from harness.settings import NETWORKS
from labkit import network_gate, plan, run_limits
from labkit.errors import USAGE, LabError


class Libvirt:
    """Hands back a guest's card and a filter as libvirt does: another order, other quotes, a UUID."""

    lib = SimpleNamespace(VIR_DOMAIN_XML_INACTIVE=2)

    def __init__(self, behind: str | None, filter_xml: str | None = None) -> None:
        reference = f"<filterref filter='{behind}'/>" if behind else ""
        self.card = f"<domain><devices><interface type='network'>{reference}</interface></devices></domain>"
        self.filter_xml = filter_xml

    def domain(self, _name: str) -> SimpleNamespace:
        return SimpleNamespace(XMLDesc=lambda _flags: self.card)

    known = domain

    def filter(self, _name: str) -> SimpleNamespace | None:
        if self.filter_xml is None:
            return None
        said = self.filter_xml.replace("><rule", "><uuid>1</uuid>\n  <rule", 1).replace('"', "'")
        return SimpleNamespace(XMLDesc=lambda _flags: said)


def test_a_card_behind_the_labs_filter_is_sealed_and_one_behind_none_is_open(lab):
    sealing = network_gate.sealing_filter(lab)
    assert network_gate.mode_now(lab, Libvirt(lab.name, sealing)) == network_gate.SEALED
    assert network_gate.mode_now(lab, Libvirt(None, sealing)) == network_gate.OPEN


def test_where_there_is_no_guest_yet_the_network_is_open(lab):
    nothing = SimpleNamespace(domain=lambda _name: None)
    assert network_gate.mode_now(lab, nothing) == network_gate.OPEN


@pytest.mark.parametrize(("old", "new"), [("8421", "8422"), ("drop", "accept"), ('dstportstart="22"', "")])
def test_a_filter_that_somebody_edited_is_said(lab, old, new):
    xml = network_gate.sealing_filter(lab)
    assert old in xml
    found = Libvirt(lab.name, xml.replace(old, new, 1))
    assert network_gate.mode_now(lab, found) == network_gate.CHANGED


def test_a_card_behind_a_filter_that_is_not_the_labs_is_said(lab):
    sealing = network_gate.sealing_filter(lab)
    assert network_gate.mode_now(lab, Libvirt("clean-traffic", sealing)) == network_gate.CHANGED
    assert network_gate.mode_now(lab, Libvirt(lab.name)) == network_gate.CHANGED


def test_what_is_let_out_names_where_to_and_what_is_refused_names_the_guest(lab):
    rules = ET.fromstring(network_gate.sealing_filter(lab)).iter("rule")
    out = [(rule.get("action"), rule[0].attrib) for rule in rules if rule.get("direction") == "out"]
    let_out = {attributes["dstipaddr"] for action, attributes in out if action == "accept"}
    assert let_out == {lab.guest["lab_host_address"], "255.255.255.255"}
    refused = [attributes["srcipaddr"] for action, attributes in out if action == "reject"]
    assert refused == [lab.address] * 2 and len(out) == 5


@pytest.mark.parametrize("content", ["0\n", None])
def test_a_kernel_that_would_not_ask_the_rules_is_refused(tmp_path, content):
    switch = tmp_path / "bridge-nf-call-iptables"
    if content is not None:
        switch.write_text(content)
    with pytest.raises(LabError, match="can't be sealed") as caught:
        network_gate.demand_bridge_is_asked(switch)
    assert "br_netfilter" in caught.value.hint


def test_host_and_harness_know_the_same_modes():
    assert NETWORKS == network_gate.MODES == run_limits.NETWORKS


def test_an_option_wins_over_the_inventory_and_reaches_the_guest(make_lab):
    lab = make_lab(run={"run_network": "sealed"})
    assert plan.harness_settings(lab, plan.make(lab))["network"] == "sealed"
    assert plan.harness_settings(lab, plan.make(lab, network="open"))["network"] == "open"


def test_a_mode_that_does_not_exist_is_named_with_those_there_are(lab):
    with pytest.raises(LabError, match="'shut'") as caught:
        plan.make(lab, network="shut")
    assert caught.value.code == USAGE and "open, sealed" in caught.value.hint
