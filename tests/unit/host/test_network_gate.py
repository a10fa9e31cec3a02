"""TESTS: the network filter as text; that it holds is seen in a real guest."""

import pytest

from harness.settings import NETWORKS
from labkit import limits, network_gate, plan
from labkit.errors import USAGE, LabError


class Libvirt:
    """Hands back a filter as libvirt does: another order, other quotes, a UUID."""

    def __init__(self, xml: str | None) -> None:
        self.xml = xml

    def filter(self, _name: str) -> "Libvirt | None":
        return self if self.xml is not None else None

    def XMLDesc(self, _flags: int) -> str:  # noqa: N802  libvirt's name
        return self.xml.replace("><rule", "><uuid>1</uuid>\n  <rule", 1).replace('"', "'")


def defined(lab, mode: str) -> str:
    return network_gate.filter_xml(lab.name, network_gate.rules_of(lab, mode))


@pytest.mark.parametrize("mode", network_gate.MODES)
def test_a_mode_is_known_again_from_what_libvirt_has(lab, mode):
    assert network_gate.mode_now(lab, Libvirt(defined(lab, mode))) == mode


def test_without_a_filter_the_network_is_open(lab):
    assert network_gate.mode_now(lab, Libvirt(None)) == network_gate.OPEN


@pytest.mark.parametrize(("old", "new"), [("8421", "8422"), ("drop", "accept"), ('dstportstart="22"', "")])
def test_a_filter_that_somebody_edited_is_said(lab, old, new):
    xml = defined(lab, network_gate.SEALED)
    assert old in xml
    assert network_gate.mode_now(lab, Libvirt(xml.replace(old, new, 1))) == network_gate.CHANGED


@pytest.mark.parametrize("content", ["0\n", None])
def test_a_kernel_that_would_not_ask_the_rules_is_refused(tmp_path, content):
    switch = tmp_path / "bridge-nf-call-iptables"
    if content is not None:
        switch.write_text(content)
    with pytest.raises(LabError, match="can't be sealed") as caught:
        network_gate.demand_bridge_is_asked(switch)
    assert "br_netfilter" in caught.value.hint


def test_host_and_harness_know_the_same_modes():
    assert NETWORKS == network_gate.MODES == limits.NETWORKS


def test_an_option_wins_over_the_inventory_and_reaches_the_guest(make_lab):
    lab = make_lab(run={"run_network": "sealed"})
    assert plan.harness_settings(lab, plan.make(lab))["network"] == "sealed"
    assert plan.harness_settings(lab, plan.make(lab, network="open"))["network"] == "open"


def test_a_mode_that_does_not_exist_is_named_with_those_there_are(lab):
    with pytest.raises(LabError, match="'shut'") as caught:
        plan.make(lab, network="shut")
    assert caught.value.code == USAGE and "open, sealed" in caught.value.hint
