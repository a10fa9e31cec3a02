"""HOST: the only file that imports libvirt. One domain, its network, its guest agent."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from labkit.domain_xml import stable_form, with_uuid
from labkit.errors import UNREACHABLE, LabError

URI = "qemu:///system"


def binding() -> Any:
    """The libvirt module; LabError where it is not installed."""
    try:
        import libvirt
    except ImportError as error:
        raise LabError(
            "the libvirt binding is not installed", "`./lab doctor` installs what is missing"
        ) from error
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    return libvirt


class RefusedError(LabError):
    """libvirt is there and does not let us in: starting it would not help."""


def _refusals(lib: Any) -> tuple[int, ...]:
    return (
        lib.VIR_ERR_AUTH_FAILED,
        lib.VIR_ERR_AUTH_CANCELLED,
        lib.VIR_ERR_AUTH_UNAVAILABLE,
        lib.VIR_ERR_ACCESS_DENIED,
    )


class Hypervisor:
    """A connection to libvirt; a context manager.

    Raises LabError (not ready) when libvirt does not answer.
    """

    def __init__(self, uri: str = URI) -> None:
        self.lib = binding()
        try:
            self.connection = self.lib.open(uri)
        except self.lib.libvirtError as error:
            if error.get_error_code() in _refusals(self.lib):
                raise RefusedError(
                    f"libvirt refuses the connection to {uri}: {error}",
                    "run the command as root; auth_unix_rw in /etc/libvirt/libvirtd.conf says who may",
                ) from error
            raise LabError(
                f"libvirt does not answer at {uri}: {error}", "`lab doctor` says how to start it"
            ) from error

    def __enter__(self) -> Hypervisor:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

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
        with self._saying(f"setting up the network {name}"):
            old = network_definition(before) if before else ""
            network = self.connection.networkDefineXML(
                with_uuid(xml, before.UUIDString() if before else uuid)
            )
            changed = network_definition(network) != old
            if changed and network.isActive():
                network.destroy()
            if not network.isActive():
                network.create()
                changed = True
        return changed

    def start_network(self, name: str) -> None:
        """Start the network where it is defined and down, as after a reboot of the host."""
        network = self.network(name)
        with self._saying(f"starting the network {name}"):
            if network is not None and not network.isActive():
                network.create()

    def ensure_domain(self, name: str, xml: str, uuid: str) -> bool:
        """Define the domain, replacing an older definition of ours. Returns True when it changed.

        uuid: as for `ensure_network`.
        """
        with self._saying(f"defining the domain {name}"):
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

    def ensure_filter(self, name: str, xml: str, uuid: str) -> None:
        """Define the filter of the guest's card; a guest that runs has the new rules when this returns.

        uuid: as for `ensure_network`.
        """
        before = self.filter(name)
        with self._saying(f"setting the network filter {name}"):
            self.connection.nwfilterDefineXML(with_uuid(xml, before.UUIDString() if before else uuid))

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
        domain = self._known(name)
        with self._saying(f"starting the guest {name}"):
            if not domain.isActive():
                domain.create()

    def stop(self, name: str) -> bool:
        """Switch the guest off at once. Returns True when it was on."""
        domain = self.domain(name)
        if domain is None or not domain.isActive():
            return False
        with self._saying(f"stopping the guest {name}"):
            try:
                domain.destroy()
            except self.lib.libvirtError:
                if domain.isActive():  # else it ended by itself in between
                    raise
        return True

    def save(self, name: str, path: Path) -> None:
        """Write the RAM image to `path`; the guest is off afterwards."""
        domain = self._known(name)
        with self._saying(f"saving the memory of {name}"):
            domain.saveFlags(str(path), None, 0)

    def saved_xml(self, path: Path) -> str:
        """The domain XML inside a RAM image."""
        with self._saying(f"reading the RAM image {path}"):
            return self.connection.saveImageGetXMLDesc(str(path), self.lib.VIR_DOMAIN_SAVE_IMAGE_XML_SECURE)

    def restore(self, path: Path, xml: str) -> None:
        """Resume from the RAM image, with `xml` in place of the one inside it."""
        with self._saying(f"resuming from {path}"):
            self.connection.restoreFlags(str(path), xml, self.lib.VIR_DOMAIN_SAVE_RUNNING)

    def live_form(self, name: str) -> str:
        """The running domain's XML without what changes at each start (see `stable_form`)."""
        return stable_form(self._known(name).XMLDesc(self.lib.VIR_DOMAIN_XML_SECURE))

    def shut_down(self, name: str, seconds: float = 120) -> None:
        """Shut down in order, so that the disks are whole; LabError after `seconds`."""
        deadline = time.monotonic() + seconds
        # Through the agent, since a cloud kernel has no power button and `shutdown` wants a login manager.
        self._agent(name, "guest-exec", {"path": "/bin/systemctl", "arg": ["poweroff"]}, deadline)
        with self._saying(f"shutting down the guest {name}"):
            while self._known(name).isActive():
                if time.monotonic() > deadline:
                    raise LabError(
                        f"the guest '{name}' did not shut down within {seconds:.0f} s",
                        "`lab up` starts over; the console log is in the lab's folder",
                        UNREACHABLE,
                    )
                time.sleep(0.2)

    def wait_for_agent(self, name: str, seconds: float) -> None:
        """Return once the guest agent answers; LabError (unreachable) after `seconds`."""
        self._agent(name, "guest-ping", {}, time.monotonic() + seconds)

    def run_in_guest(self, name: str, argv: list[str], stdin: bytes = b"", seconds: float = 60) -> str:
        """Run a program through the guest agent, as root; returns its output.

        For the moments in which SSH must not be used yet. Raises LabError (unreachable) when the
        agent does not answer within `seconds`, or the program fails.
        """
        deadline = time.monotonic() + seconds
        reply = self._agent(
            name,
            "guest-exec",
            {
                "path": argv[0],
                "arg": argv[1:],
                "input-data": base64.b64encode(stdin).decode(),
                "capture-output": True,
            },
            deadline,
        )
        while True:
            status = self._agent(name, "guest-exec-status", {"pid": reply["pid"]}, deadline)
            if status["exited"]:
                break
            if time.monotonic() > deadline:
                raise LabError(
                    f"{argv[0]} did not end within {seconds:.0f} s in the guest {name}",
                    "`lab revert` starts again from the snapshot",
                    UNREACHABLE,
                )
            time.sleep(0.02)
        output = base64.b64decode(status.get("out-data", "")).decode(errors="replace")
        if status.get("exitcode", 1) != 0:
            complaint = base64.b64decode(status.get("err-data", "")).decode(errors="replace").strip()
            raise LabError(
                f"{argv[0]} failed in the guest {name}: {complaint or output.strip()}",
                "`lab ssh` looks inside; `lab revert` starts again from the snapshot",
                UNREACHABLE,
            )
        return output

    def ask_over(self, channel: str, name: str, line: str, seconds: float = 60) -> str:
        """Send a line over a virtio channel of the guest to the program that waits there; returns its answer.

        Starts nothing in the guest, and is quicker for it. Raises LabError (unreachable) after `seconds`.
        """
        sought = f"./devices/channel/target[@name='{channel}']/../source"
        source = ET.fromstring(self._known(name).XMLDesc(0)).find(sought)
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(seconds)
                connection.connect(source.get("path") if source is not None else "")
                connection.sendall(line.encode() + b"\n")
                return connection.makefile().readline().rstrip("\n")
        except OSError as error:
            raise LabError(
                f"nothing answers on the channel {channel} of the guest {name}: {error}",
                "`lab revert` starts again from the snapshot; `lab up` takes a new one",
                UNREACHABLE,
            ) from error

    def _agent(self, name: str, command: str, arguments: dict[str, Any], deadline: float) -> Any:
        import libvirt_qemu

        request = json.dumps({"execute": command, "arguments": arguments})
        while True:
            try:
                reply = libvirt_qemu.qemuAgentCommand(self._known(name), request, 10, 0)
                return json.loads(reply)["return"]
            except self.lib.libvirtError as error:
                if time.monotonic() > deadline or not self._known(name).isActive():
                    raise LabError(
                        f"the agent of the guest {name} does not answer: {error}",
                        "`lab status` shows the guest; its console log is in the lab's folder",
                        UNREACHABLE,
                    ) from error
                time.sleep(0.02)

    def remove(self, name: str) -> list[str]:
        """Stop and undefine domain, network and filter of that name; returns what was removed."""
        removed = []
        self.stop(name)
        domain, network, card_filter = self.domain(name), self.network(name), self.filter(name)
        with self._saying(f"removing {name}"):
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

    def _known(self, name: str) -> Any:
        domain = self.domain(name)
        if domain is None:
            raise LabError(f"there is no guest named '{name}'", "`lab up` builds it")
        return domain

    @contextlib.contextmanager
    def _saying(self, doing: str) -> Iterator[None]:
        try:
            yield
        except self.lib.libvirtError as error:
            raise self._failed(doing, error) from error

    @staticmethod
    def _failed(doing: str, error: Exception) -> LabError:
        return LabError(f"libvirt failed while {doing}: {error}", "`lab doctor` checks this machine")


def definition(domain: Any) -> str:
    """The persistent definition in canonical form."""
    lib = binding()
    return ET.canonicalize(domain.XMLDesc(lib.VIR_DOMAIN_XML_INACTIVE | lib.VIR_DOMAIN_XML_SECURE))


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
