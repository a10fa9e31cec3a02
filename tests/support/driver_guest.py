"""A guest on libvirt's own test driver, which needs no daemon: real objects, real errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from labkit.guest import Hypervisor

URI = "test:///default"
UUID = "11111111-2222-4333-8444-555555555555"
XML = (
    "<domain type='test'><name>unit</name><memory>65536</memory><vcpu>1</vcpu>"
    "<os><type>hvm</type></os></domain>"
)


@contextlib.contextmanager
def connected() -> Iterator[Hypervisor]:
    """The driver's objects outlive a connection within one process, so what a test defined goes again."""
    with Hypervisor(URI) as hypervisor:
        yield hypervisor
        for name in ("unit", "unit2"):
            for found in (hypervisor.domain(name), hypervisor.network(name)):
                if found:
                    if found.isActive():
                        found.destroy()
                    found.undefine()
