"""HOST: all that is asked of libvirt about one domain, its network and its filter."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from labkit.domain_xml import stable_form, with_card_filter, with_uuid
from labkit.errors import LabError
from labkit.libvirt_connection import Connection, binding


class Hypervisor(Connection):
    """What is asked of libvirt and told it, by the name of a domain."""

    def domain(self, name: str) -> Any | None:
        """The domain of that name, or None."""
        try:
            return self.connection.lookupByName(name)
        except self.lib.libvirtError as error:
            if error.get_error_code() == self.lib.VIR_ERR_NO_DOMAIN:
                return None
            raise self._failed(f"looking up the domain {name}", error) from error

    def network(self, name: str) -> Any | None:
        """The network of that name, or None."""
        try:
            return self.connection.networkLookupByName(name)
        except self.lib.libvirtError as error:
            if error.get_error_code() == self.lib.VIR_ERR_NO_NETWORK:
                return None
            raise self._failed(f"looking up the network {name}", error) from error

    def bridge(self, name: str) -> str | None:
        """The interface of this host that the network of that name is on; None where it is down or absent."""
        network = self.network(name)
        return network.bridgeName() if network is not None and network.isActive() else None

    def versions(self) -> dict[str, str]:
        """libvirt, QEMU and host processor: what a RAM image depends on."""
        caps = ET.fromstring(self.connection.getCapabilities())
        return {
            "libvirt": _dotted(self.connection.getLibVersion()),
            "qemu": _dotted(self.connection.getVersion()),
            "processor": caps.findtext("./host/cpu/model") or caps.findtext("./host/cpu/arch") or "unknown",
        }

    def ensure_network(self, name: str, xml: str, uuid: str) -> bool:
        """Define and start the lab's network. Returns True when something changed.

        uuid: what it is known by; one that exists under this name keeps its own.
        """
        before = self.network(name)
        with self.saying(f"setting up the network {name}"):
            old = network_definition(before) if before else ""
            network = self.connection.networkDefineXML(
                with_uuid(xml, before.UUIDString() if before else uuid)
            )
            changed = network_definition(network) != old
            if changed and network.isActive():
                network.destroy()
            if not network.isActive():
                self._create(network)
                changed = True
        return changed

    def start_network(self, name: str) -> None:
        """Start the network where it is defined and down, as after a reboot of the host."""
        network = self.network(name)
        with self.saying(f"starting the network {name}"):
            if network is not None and not network.isActive():
                self._create(network)

    def _create(self, network: Any) -> None:
        try:
            network.create()
        except self.lib.libvirtError as error:
            if not (taken := re.search(r"already in use by interface (\S+)", str(error))):
                raise
            holder = taken[1]
            raise LabError(
                f"the addresses of the network {network.name()} are in use on this host's interface {holder}",
                f"choose another lab_network_cidr (and addresses) in guest.yml; where {holder} was left by a"
                f" libvirt that was killed, `ip link delete {holder}`",
            ) from error

    def ensure_domain(self, name: str, xml: str, uuid: str) -> bool:
        """Define the domain, replacing an older definition of ours. Returns True when it changed.

        uuid: as for `ensure_network`.
        """
        with self.saying(f"defining the domain {name}"):
            before = self.domain(name)
            old = definition(before) if before else ""
            domain = self.connection.defineXML(with_uuid(xml, before.UUIDString() if before else uuid))
            return definition(domain) != old

    def filter(self, name: str) -> Any | None:
        """The network filter of that name, or None."""
        try:
            return self.connection.nwfilterLookupByName(name)
        except self.lib.libvirtError as error:
            if error.get_error_code() in (self.lib.VIR_ERR_NO_NWFILTER, self.lib.VIR_ERR_NO_SUPPORT):
                return None
            raise self._failed(f"looking up the network filter {name}", error) from error

    def state(self, name: str) -> str:
        """One of: absent, off, running, paused, crashed."""
        domain = self.domain(name)
        if domain is None:
            return "absent"
        lib = self.lib
        words = {
            lib.VIR_DOMAIN_RUNNING: "running",
            lib.VIR_DOMAIN_BLOCKED: "running",
            lib.VIR_DOMAIN_PAUSED: "paused",
            lib.VIR_DOMAIN_PMSUSPENDED: "paused",
            lib.VIR_DOMAIN_CRASHED: "crashed",
        }
        return words.get(domain.state()[0], "off")

    def paused_by_io_error(self, name: str) -> bool:
        """True where QEMU paused the guest since this host could not write for it: mostly a full disk."""
        domain = self.domain(name)
        lib = self.lib
        return domain is not None and tuple(domain.state()) == (
            lib.VIR_DOMAIN_PAUSED,
            lib.VIR_DOMAIN_PAUSED_IOERROR,
        )

    def start(self, name: str) -> None:
        """Cold boot. Does nothing when the domain runs already."""
        domain = self.known(name)
        with self.saying(f"starting the guest {name}"):
            if not domain.isActive():
                domain.create()

    def stop(self, name: str) -> bool:
        """Switch the guest off at once. Returns True when it was on."""
        domain = self.domain(name)
        if domain is None or not domain.isActive():
            return False
        with self.saying(f"stopping the guest {name}"):
            try:
                domain.destroy()
            except self.lib.libvirtError:
                if domain.isActive():  # else it ended by itself in between
                    raise
        return True

    def save(self, name: str, path: Path) -> None:
        """Write the RAM image to `path`; the guest is off afterwards."""
        domain = self.known(name)
        with self.saying(f"saving the memory of {name}"):
            domain.saveFlags(str(path), None, 0)

    def saved_xml(self, path: Path) -> str:
        """The domain XML inside a RAM image."""
        with self.saying(f"reading the RAM image {path}"):
            return self.connection.saveImageGetXMLDesc(str(path), self.lib.VIR_DOMAIN_SAVE_IMAGE_XML_SECURE)

    def restore(self, path: Path, xml: str) -> None:
        """Resume from the RAM image, with `xml` in place of the one inside it."""
        with self.saying(f"resuming from {path}"):
            self.connection.restoreFlags(str(path), xml, self.lib.VIR_DOMAIN_SAVE_RUNNING)

    def live_form(self, name: str) -> str:
        """The running domain's XML without what changes at each start (see `stable_form`)."""
        return stable_form(self.known(name).XMLDesc(self.lib.VIR_DOMAIN_XML_SECURE))

    def remove(self, name: str) -> list[str]:
        """Stop and undefine domain, network and filter of that name; returns what was removed."""
        removed = []
        self.stop(name)
        domain, network, card_filter = self.domain(name), self.network(name), self.filter(name)
        with self.saying(f"removing {name}"):
            if domain is not None:
                domain.undefineFlags(
                    self.lib.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
                    | self.lib.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
                    | self.lib.VIR_DOMAIN_UNDEFINE_NVRAM
                )
                removed.append(f"domain {name}")
            if network is not None:
                if network.isActive():
                    network.destroy()
                network.undefine()
                removed.append(f"network {name}")
            if card_filter is not None:
                card_filter.undefine()
                removed.append(f"network filter {name}")
        return removed

    def known(self, name: str) -> Any:
        """The domain of that name; LabError where there is none."""
        domain = self.domain(name)
        if domain is None:
            raise LabError(f"there is no guest named '{name}'", "`lab up` builds it")
        return domain


def definition(domain: Any) -> str:
    """The persistent definition in canonical form, without the filter that the network gate switches."""
    lib = binding()
    xml = domain.XMLDesc(lib.VIR_DOMAIN_XML_INACTIVE | lib.VIR_DOMAIN_XML_SECURE)
    return ET.canonicalize(with_card_filter(xml, None))


def network_definition(network: Any) -> str:
    """The persistent definition of a network in canonical form."""
    lib = binding()
    try:
        xml = network.XMLDesc(lib.VIR_NETWORK_XML_INACTIVE)
    except lib.libvirtError as error:
        if error.get_error_code() != lib.VIR_ERR_INVALID_ARG:
            raise
        xml = network.XMLDesc(0)  # libvirt's test driver knows no other
    return ET.canonicalize(xml)


def _dotted(number: int) -> str:
    return f"{number // 1000000}.{number // 1000 % 1000}.{number % 1000}"
