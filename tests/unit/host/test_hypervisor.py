"""TESTS: guest.py on libvirt's own test driver, which needs no daemon: real objects, real errors."""

from __future__ import annotations

import pytest
from driver_guest import UUID

from labkit import ownership, state
from labkit.errors import LabError
from labkit.guest import Hypervisor

OTHER = "99999999-2222-4333-8444-555555555555"


def domain_xml(name: str = "unit", memory: int = 64, disk: str = "/somewhere/disk.qcow2") -> str:
    return (
        f"<domain type='test'><name>{name}</name><memory unit='MiB'>{memory}</memory><vcpu>1</vcpu>"
        "<os><type>hvm</type></os><devices>"
        f"<disk type='file' device='disk'><source file='{disk}'/><target dev='vda' bus='virtio'/></disk>"
        "</devices></domain>"
    )


NETWORK = "<network><name>unit</name><ip address='192.168.77.1' netmask='255.255.255.0'/></network>"


def test_a_libvirt_that_does_not_answer_is_said_with_the_cure():
    with pytest.raises(LabError, match="libvirt does not answer") as caught:
        Hypervisor("test:///nowhere/at/all.xml")
    assert "lab doctor" in caught.value.hint


def test_each_state_of_a_guest_has_its_word(hypervisor):
    assert hypervisor.state("unit") == "absent"
    hypervisor.ensure_domain("unit", domain_xml(), UUID)
    assert hypervisor.state("unit") == "off"
    hypervisor.start("unit")
    assert hypervisor.state("unit") == "running"
    hypervisor.domain("unit").suspend()
    assert hypervisor.state("unit") == "paused"


def test_starting_and_stopping_twice_is_once(hypervisor):
    hypervisor.ensure_domain("unit", domain_xml(), UUID)
    hypervisor.start("unit")
    hypervisor.start("unit")
    assert hypervisor.stop("unit") is True
    assert hypervisor.stop("unit") is False
    assert hypervisor.stop("never-was") is False


def test_a_guest_that_is_not_there_cannot_be_started(hypervisor):
    with pytest.raises(LabError, match="no guest named 'unit'") as caught:
        hypervisor.start("unit")
    assert "lab up" in caught.value.hint


def test_defining_the_same_twice_changes_nothing(hypervisor):
    assert hypervisor.ensure_domain("unit", domain_xml(), UUID) is True
    assert hypervisor.ensure_domain("unit", domain_xml(), UUID) is False
    assert hypervisor.domain("unit").UUIDString() == UUID


def test_another_definition_replaces_the_old_one_and_keeps_its_uuid(hypervisor):
    hypervisor.ensure_domain("unit", domain_xml(), UUID)
    assert hypervisor.ensure_domain("unit", domain_xml(memory=128), OTHER) is True
    assert hypervisor.domain("unit").UUIDString() == UUID
    assert hypervisor.domain("unit").maxMemory() == 128 * 1024


def test_nonsense_xml_is_refused_in_libvirts_own_words(hypervisor):
    with pytest.raises(LabError, match="libvirt failed while defining the domain unit: "):
        hypervisor.ensure_domain("unit", "<domain type='test'><name>unit</name></domain>", UUID)


def test_a_network_that_is_down_is_started_and_one_that_is_missing_is_no_error(hypervisor):
    hypervisor.start_network("unit")
    hypervisor.connection.networkDefineXML(NETWORK)
    hypervisor.start_network("unit")
    hypervisor.start_network("unit")
    assert hypervisor.network("unit").isActive()


def test_the_versions_name_what_a_memory_image_depends_on(hypervisor):
    assert set(hypervisor.versions()) == {"libvirt", "qemu", "processor"}
    assert all(hypervisor.versions().values())


def test_a_domain_of_somebody_else_is_refused_by_name(hypervisor, tmp_path):
    hypervisor.ensure_domain("unit", domain_xml(), OTHER)
    with pytest.raises(LabError, match="domain named 'unit' exists and is not this lab's") as caught:
        ownership.refuse_foreign(hypervisor, "unit", tmp_path)
    assert "lab_name" in caught.value.hint


def test_a_network_of_somebody_else_is_refused_by_name(hypervisor, tmp_path):
    hypervisor.connection.networkDefineXML(NETWORK)
    with pytest.raises(LabError, match="network named 'unit' exists"):
        ownership.refuse_foreign(hypervisor, "unit", tmp_path)


def test_what_an_interrupted_up_left_behind_is_known_as_ours(hypervisor, tmp_path):
    claimed = ownership.claim(tmp_path)
    # interrupted here: nothing but the first definition was made
    hypervisor.connection.networkDefineXML(
        NETWORK.replace("</name>", f"</name><uuid>{claimed['network']}</uuid>")
    )
    ownership.refuse_foreign(hypervisor, "unit", tmp_path)
    assert ownership.claim(tmp_path) == claimed


def test_a_lost_state_file_does_not_make_our_guest_a_stranger(hypervisor, tmp_path):
    hypervisor.ensure_domain("unit", domain_xml(disk=f"{tmp_path}/disks/system.qcow2"), UUID)
    hypervisor.connection.networkDefineXML(NETWORK)
    assert state.read(tmp_path) == {}
    ownership.refuse_foreign(hypervisor, "unit", tmp_path)
