"""HOST: `lab down` removes what `lab up` made: no collected run, and nothing of a second lab beside it."""

import uuid

import guest_lab
import jinja2
import pytest
import yaml
from free_network import free_network

from labkit import network_gate
from labkit.config import REPO
from labkit.guest import Hypervisor, definition, network_definition

SECOND = "labtest2"
ROLE = REPO / "roles" / "domain"


def rendered(template: str) -> str:
    """A template of the domain role for a second lab, with addresses of its own."""
    network = free_network(160)
    values = yaml.safe_load((ROLE / "defaults/main.yml").read_text()) | {
        "domain_type": "qemu",
        "domain_name": SECOND,
        "domain_dir": f"/var/lib/vm-lab-test/{SECOND}",
        "domain_network_cidr": network["lab_network_cidr"],
        "domain_host_address": network["lab_host_address"],
        "domain_guest_address": network["lab_guest_address"],
        "domain_guest_mac": network["lab_guest_mac"],
    }
    engine = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined)
    return engine.from_string((ROLE / "templates" / template).read_text()).render(values)


@pytest.fixture
def second():
    """Another lab's guest and network, defined only; yields what they look like."""
    with Hypervisor() as hypervisor:
        try:
            hypervisor.ensure_network(SECOND, rendered("network.xml.j2"), str(uuid.uuid4()))
            hypervisor.ensure_domain(SECOND, rendered("domain.xml.j2"), str(uuid.uuid4()))
            yield seen(hypervisor)
        finally:
            hypervisor.remove(SECOND)


def seen(hypervisor: Hypervisor) -> tuple[str, str]:
    domain, network = hypervisor.domain(SECOND), hypervisor.network(SECOND)
    return definition(domain), network_definition(network)


@pytest.mark.skipif(guest_lab.KEEP, reason="LAB_TEST_KEEP keeps the guest")
def test_down_removes_guest_network_and_folder_but_no_collected_run_and_nothing_of_a_second_lab(
    lab, collected, second
):
    network_gate.at_next_start(lab.config, network_gate.SEALED)  # so that there is a filter to remove
    removed = lab.lab("down", "--json").json["removed"]
    assert removed == [
        "domain labtest",
        "network labtest",
        "network filter labtest",
        str(lab.config.dir),
    ]
    with Hypervisor() as hypervisor:
        assert hypervisor.domain("labtest") is None and hypervisor.network("labtest") is None
        assert hypervisor.filter("labtest") is None
        assert seen(hypervisor) == second
    assert not lab.config.dir.exists()
    assert (collected / "run.db").is_file() and any(lab.config.images_dir.iterdir())
    assert lab.lab("down", "--json").json == {"removed": []}
