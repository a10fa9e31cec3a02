"""TESTS: the domain and network that `lab up` defines, as golden files, and what the kit does to such XML."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import jinja2
import pytest
import yaml

from labkit.domain_xml import stable_form, stands_in, with_backing_chain, with_uuid

ROOT = Path(__file__).parents[3]
ROLE = ROOT / "roles" / "domain"
GOLDEN = ROOT / "tests" / "golden"
SET = "/var/lib/vm-lab/lab/set"
UUID = "11111111-2222-4333-8444-555555555555"


def rendered(template: str, **changes: object) -> str:
    """A template of the domain role as Ansible renders it, with the role's defaults."""
    values = yaml.safe_load((ROLE / "defaults/main.yml").read_text()) | changes
    engine = jinja2.Environment(
        trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined
    )
    return engine.from_string((ROLE / "templates" / template).read_text()).render(values)


@pytest.fixture
def domain() -> str:
    return (GOLDEN / "domain-emulated.xml").read_text()


@pytest.mark.parametrize(
    ("golden", "template", "values"),
    [
        ("domain-kvm.xml", "domain.xml.j2", {"domain_type": "kvm"}),
        ("domain-emulated.xml", "domain.xml.j2", {"domain_type": "qemu"}),
        ("network.xml", "network.xml.j2", {}),
    ],
)
def test_what_up_defines_is_what_the_golden_file_says(golden, template, values):
    # After a wanted change of a template, change the golden file by hand: it is read by people.
    text = rendered(template, **values)
    assert ET.canonicalize(text, strip_text=True) == ET.canonicalize(
        (GOLDEN / golden).read_text(), strip_text=True
    )


def test_the_golden_guest_has_two_disks_a_seed_one_network_and_an_agent(domain):
    root = ET.fromstring(domain)
    assert [disk.get("dev") for disk in root.iterfind("devices/disk/target")] == ["vda", "vdb", "vdc"]
    assert {disk.get("bus") for disk in root.iterfind("devices/disk/target")} == {"virtio"}
    assert root.find("devices/channel/target").get("name") == "org.qemu.guest_agent.0"
    assert len(root.findall("devices/interface")) == 1


def live(xml: str, **changes: str) -> str:
    """`xml` as a running domain shows it: what libvirt adds at a start, different each time."""
    root = ET.fromstring(xml)
    root.set("id", changes.get("id", "3"))
    for disk in root.iter("disk"):
        ET.SubElement(disk, "alias", name=changes.get("alias", "virtio-disk0"))
        disk.find("source").set("index", changes.get("id", "3"))
        ET.SubElement(disk, "backingStore")
    interface = root.find("devices/interface")
    ET.SubElement(interface, "target", dev=changes.get("tap", "vnet4"))
    interface.find("source").set("portid", changes.get("id", "3"))
    for console in root.iter("console"):
        console.set("tty", changes.get("tty", "/dev/pts/4"))
        ET.SubElement(console, "source", path=changes.get("tty", "/dev/pts/4"))
    ET.SubElement(root, "seclabel", type="dynamic", model="dac")
    return ET.tostring(root, encoding="unicode")


def test_two_starts_of_one_definition_have_one_stable_form(domain):
    second = live(domain, id="9", alias="virtio-disk7", tap="vnet11", tty="/dev/pts/9")
    assert stable_form(live(domain)) == stable_form(second)


def test_another_order_of_the_devices_changes_nothing(domain):
    root = ET.fromstring(domain)
    devices = root.find("devices")
    devices[:] = reversed(devices)
    assert stable_form(ET.tostring(root, encoding="unicode")) == stable_form(domain)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("disks/data.qcow2", "disks/other.qcow2"),
        ('network="lab"', 'network="default"'),
        ('"52:54:00:1a:b0:10"', '"52:54:00:1a:b0:11"'),
        (">6144<", ">8192<"),
        ("<vcpu>2<", "<vcpu>4<"),
        ('model="random"', 'model="egd"'),
    ],
)
def test_a_changed_disk_network_or_size_shows(domain, old, new):
    assert old in domain
    assert stable_form(domain.replace(old, new)) != stable_form(domain)


def test_a_restored_disk_is_told_what_lies_below_it(domain):
    told = with_backing_chain(live(domain), {"vda": f"{SET}/system.qcow2", "vdb": f"{SET}/data.qcow2"})
    disks = {disk.find("target").get("dev"): disk for disk in ET.fromstring(told).iter("disk")}
    for target, file in (("vda", "system.qcow2"), ("vdb", "data.qcow2")):
        chains = disks[target].findall("backingStore")
        assert len(chains) == 1  # an empty one beside it would say that there is nothing below
        assert chains[0].find("source").get("file") == f"{SET}/{file}"
        assert chains[0].find("format").get("type") == "qcow2"
        assert chains[0].find("backingStore") is not None
    assert disks["vdc"].find("backingStore/source") is None


def test_a_definition_gets_one_uuid_and_no_second(domain):
    once = with_uuid(domain, UUID)
    other = UUID.replace("1", "9")
    assert ET.fromstring(once).findtext("uuid") == UUID
    assert [node.text for node in ET.fromstring(with_uuid(once, other)).findall("uuid")] == [other]


def test_a_domain_belongs_to_the_folder_that_holds_all_its_disks(domain):
    assert stands_in(domain, "/var/lib/vm-lab/lab")
    assert not stands_in(domain, "/var/lib/vm-lab/la")
    assert not stands_in(domain.replace("lab/disks/data", "other/disks/data"), "/var/lib/vm-lab/lab")
    assert not stands_in("<domain><devices/></domain>", "/var/lib/vm-lab/lab")
