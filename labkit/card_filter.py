"""HOST: the libvirt filter that the guest's network card is behind: its rules, and whether it is."""

from __future__ import annotations

from labkit.domain_xml import card_filters, cards, with_card_filter, with_uuid
from labkit.guest import Hypervisor


def define(hypervisor: Hypervisor, name: str, xml: str, uuid: str) -> None:
    """Define the filter of that name; a running guest that is behind it has the new rules at once.

    uuid: what it is known by; one that exists under this name keeps its own.
    """
    before = hypervisor.filter(name)
    with hypervisor.saying(f"setting the network filter {name}"):
        hypervisor.connection.nwfilterDefineXML(with_uuid(xml, before.UUIDString() if before else uuid))


def put_behind(hypervisor: Hypervisor, name: str, card_filter: str | None, live: bool = True) -> None:
    """Put the guest's card behind a filter (None: none) for each later start; live: also while it runs."""
    domain, lib = hypervisor.known(name), hypervisor.lib
    views = [(lib.VIR_DOMAIN_AFFECT_CONFIG, lib.VIR_DOMAIN_XML_INACTIVE)]
    if live and domain.isActive():
        views.append((lib.VIR_DOMAIN_AFFECT_LIVE, 0))
    with hypervisor.saying(f"switching the network of {name}"):
        for affect, view in views:
            xml = domain.XMLDesc(view)
            if set(card_filters(xml)) != {card_filter}:
                for card in cards(with_card_filter(xml, card_filter)):
                    domain.updateDeviceFlags(card, affect)


def now(hypervisor: Hypervisor, name: str) -> str | None:
    """The filter that the guest's card is behind while it runs, else the one it will start behind."""
    return _only(hypervisor.known(name).XMLDesc(0))


def at_start(hypervisor: Hypervisor, name: str) -> str | None:
    """The filter behind which the guest will start."""
    return _only(hypervisor.known(name).XMLDesc(hypervisor.lib.VIR_DOMAIN_XML_INACTIVE))


def _only(xml: str) -> str | None:
    """None where no card is behind a filter; the names, where there is more than one."""
    return ", ".join(sorted({found for found in card_filters(xml) if found})) or None
