"""TESTS: `lab down` takes what is ours and no more, and two labs of other names live side by side."""

from __future__ import annotations

import pytest
from test_domain_xml import rendered

from labkit import ownership, state
from labkit.errors import LabError

FIRST = {"domain_name": "unit", "domain_dir": "/var/lib/vm-lab/unit"}
SECOND = {
    "domain_name": "unit2",
    "domain_dir": "/var/lib/vm-lab/unit2",
    "domain_network_cidr": "192.168.152.0/24",
    "domain_host_address": "192.168.152.1",
    "domain_guest_address": "192.168.152.10",
    "domain_guest_mac": "52:54:00:1a:b2:10",
}


def simple_domain(name: str, folder: str) -> str:
    """The test driver takes no disks of KVM's kind; name and disks are what ownership looks at."""
    return (
        f"<domain type='test'><name>{name}</name><memory>65536</memory><os><type>hvm</type></os><devices>"
        f"<disk type='file' device='disk'><source file='{folder}/disks/system.qcow2'/>"
        "<target dev='vda' bus='virtio'/></disk></devices></domain>"
    )


def define(hypervisor, lab_dir, values) -> None:
    name, ours = values["domain_name"], ownership.claim(lab_dir)
    hypervisor.ensure_network(name, rendered("network.xml.j2", **values), ours["network"])
    hypervisor.ensure_domain(name, simple_domain(name, str(lab_dir)), ours["domain"])


def test_two_labs_share_no_name_no_address_and_no_disk():
    first, second = (
        rendered("domain.xml.j2", domain_type="qemu", **values) + rendered("network.xml.j2", **values)
        for values in (FIRST, SECOND)
    )
    for word in ("/vm-lab/unit/", "52:54:00:1a:b0:10", "192.168.150.", "<name>unit</name>"):
        assert word in first and word not in second
    for word in ("/vm-lab/unit2/", "52:54:00:1a:b2:10", "192.168.152.", 'network="unit2"'):
        assert word in second and word not in first


def test_each_of_two_labs_is_its_own_and_the_others_are_foreign_to_it(hypervisor, tmp_path):
    for name, values in (("one", FIRST), ("two", SECOND)):
        (tmp_path / name).mkdir()
        define(hypervisor, tmp_path / name, values)
    ownership.refuse_foreign(hypervisor, "unit", tmp_path / "one")
    ownership.refuse_foreign(hypervisor, "unit2", tmp_path / "two")
    with pytest.raises(LabError, match="is not this lab's"):
        ownership.refuse_foreign(hypervisor, "unit2", tmp_path / "one")


def test_a_network_that_took_the_place_of_ours_is_foreign_although_the_guest_is_ours(hypervisor, tmp_path):
    define(hypervisor, tmp_path, FIRST)
    network = hypervisor.network("unit")
    network.destroy()
    network.undefine()
    other = "<network><name>unit</name><ip address='192.168.77.1' netmask='255.255.255.0'/></network>"
    hypervisor.ensure_network("unit", other, "99999999-2222-4333-8444-555555555555")
    with pytest.raises(LabError, match="network named 'unit'"):
        ownership.refuse_foreign(hypervisor, "unit", tmp_path)


def test_a_lab_whose_state_was_lost_is_known_by_the_disks_of_its_guest(hypervisor, tmp_path):
    define(hypervisor, tmp_path, FIRST)
    state.set_damaged_aside(tmp_path)
    (tmp_path / "state.json").unlink()
    ownership.refuse_foreign(hypervisor, "unit", tmp_path)


def test_a_file_in_the_labs_folder_that_is_not_ours_stays_and_is_named(tmp_path):
    lab_dir = tmp_path / "unit"
    for folder in ("disks", "set", "set.new", "keys", "gateway/a-run", "my-notes"):
        (lab_dir / folder).mkdir(parents=True)
    for file in ("state.json", "state.json.lock", "receipt.json", "console.log", "disks/x", "my-notes/y"):
        (lab_dir / file).touch()
    assert ownership.remove_files(lab_dir) == ["my-notes"]
    assert sorted(path.name for path in lab_dir.rglob("*")) == ["my-notes", "y"]


def test_a_folder_with_nothing_but_ours_is_gone(tmp_path):
    lab_dir = tmp_path / "unit"
    lab_dir.mkdir()
    (lab_dir / "state.json").touch()
    assert ownership.remove_files(lab_dir) == [] and not lab_dir.exists()


def test_a_link_is_removed_and_not_what_it_points_to(tmp_path):
    elsewhere, lab_dir = tmp_path / "elsewhere", tmp_path / "unit"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    lab_dir.mkdir()
    (lab_dir / "gateway").symlink_to(elsewhere)
    assert ownership.remove_files(lab_dir) == []
    assert (elsewhere / "precious").exists()
