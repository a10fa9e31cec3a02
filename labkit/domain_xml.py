"""HOST: what the kit does to libvirt's XML, as text: no connection, no libvirt."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import PurePosixPath

# What QEMU and libvirt fill in anew at each start; everything else belongs to the definition.
VOLATILE_TAGS = {"alias", "seclabel", "backingStore"}
VOLATILE_ATTRIBUTES = {"domain": {"id"}, "source": {"index", "fds", "portid", "bridge"}, "console": {"tty"}}


def with_uuid(xml: str, uuid: str) -> str:
    """`xml` with that UUID: libvirt takes a definition without the old one for a stranger of that name."""
    root = ET.fromstring(xml)
    for old in root.findall("uuid"):
        root.remove(old)
    ET.SubElement(root, "uuid").text = uuid
    return ET.tostring(root, encoding="unicode")


def stands_in(xml: str, folder: str) -> bool:
    """True for a domain all of whose disks lie below `folder`."""
    sources = [source.get("file", "") for source in ET.fromstring(xml).iterfind("./devices/disk/source")]
    return bool(sources) and all(PurePosixPath(file).is_relative_to(folder) for file in sources)


def stable_form(xml: str) -> str:
    """Domain XML without process ids, aliases, labels and host-side device names, canonical.

    Two starts of one definition give equal text; a changed disk, network or size does not.
    """
    root = ET.fromstring(xml)
    for parent in root.iter():
        for child in list(parent):
            if child.tag in VOLATILE_TAGS:
                parent.remove(child)
        for attribute in VOLATILE_ATTRIBUTES.get(parent.tag, ()):
            parent.attrib.pop(attribute, None)
    _drop_host_side_names(root)
    devices = root.find("devices")
    if devices is not None:  # libvirt lists controllers in another order after a restore
        devices[:] = sorted(devices, key=lambda device: ET.tostring(device, encoding="unicode"))
    return ET.canonicalize(ET.tostring(root, encoding="unicode"), strip_text=True)


def _drop_host_side_names(root: ET.Element) -> None:
    for interface in root.iter("interface"):
        _drop(interface, "target", "backend", "filterref")  # a filter is switched, not defined: network_gate
    for tag in ("serial", "console", "channel"):
        for device in root.iter(tag):
            if device.get("type") in ("pty", "unix"):
                _drop(device, "source")
    for target in root.iterfind(".//channel/target"):
        target.attrib.pop("state", None)


def _drop(parent: ET.Element, *tags: str) -> None:
    for child in list(parent):
        if child.tag in tags:
            parent.remove(child)


def with_backing_chain(xml: str, frozen: dict[str, str]) -> str:
    """`xml` with the backing file of each overlay named.

    frozen: disk target (vda, ...) to the frozen file its overlay stands on. Without this a saved
    XML says `<backingStore/>`, and QEMU reads the overlay as if it had nothing below it.
    """
    root = ET.fromstring(xml)
    for disk in root.iter("disk"):
        target = disk.find("target")
        if target is None or target.get("dev") not in frozen:
            continue
        for old in disk.findall("backingStore"):
            disk.remove(old)
        chain = ET.SubElement(disk, "backingStore", type="file")
        ET.SubElement(chain, "format", type="qcow2")
        ET.SubElement(chain, "source", file=frozen[target.get("dev")])
        ET.SubElement(chain, "backingStore")
    return ET.tostring(root, encoding="unicode")


def card_filters(xml: str) -> list[str | None]:
    """The filter that each network card refers to, or None, in the order of the cards."""
    references = [card.find("filterref") for card in ET.fromstring(xml).iter("interface")]
    return [None if reference is None else reference.get("filter") for reference in references]


def with_card_filter(xml: str, name: str | None) -> str:
    """`xml` with each network card behind the filter of that name, or behind none."""
    root = ET.fromstring(xml)
    for card in root.iter("interface"):
        _drop(card, "filterref")
        if name:
            ET.SubElement(card, "filterref", filter=name)
    return ET.tostring(root, encoding="unicode")


def cards(xml: str) -> list[str]:
    """The network cards, each as XML of its own."""
    return [ET.tostring(card, encoding="unicode") for card in ET.fromstring(xml).iter("interface")]
