#!/usr/bin/python
"""HOST: Ansible's view of labkit.guest and labkit.disks: builds, runs or removes one guest."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from labkit import boot, disks, guest_agent, ownership, state
from labkit.errors import NOT_READY, LabError
from labkit.guest import Hypervisor

DOCUMENTATION = r"""
module: lab_guest
short_description: A libvirt domain with its own network, disks and seed
options:
  name: {type: str, required: true, description: Name of the domain and of the network}
  dir: {type: path, required: true, description: The lab's folder}
  state: {type: str, choices: [built, running, rebooted, off, absent], required: true}
  image_folder: {type: path, description: Where the image lies (built)}
  data_disk_gb: {type: int, description: Size of the second disk (built)}
  seed: {type: dict, description: Files of the cloud-init seed (built)}
  network_xml: {type: str, description: The network's definition (built)}
  domain_xml: {type: str, description: The domain's definition (built)}
  address: {type: str, description: Where its sshd will answer (running, rebooted)}
"""

OPTIONS = {
    "name": {"type": "str", "required": True},
    "dir": {"type": "path", "required": True},
    "state": {"type": "str", "required": True, "choices": ["built", "running", "rebooted", "off", "absent"]},
    "image_folder": {"type": "path"},
    "data_disk_gb": {"type": "int"},
    "seed": {"type": "dict", "no_log": True},
    "network_xml": {"type": "str"},
    "domain_xml": {"type": "str"},
    "address": {"type": "str"},
}
NEEDED = [
    ("state", "built", ("image_folder", "data_disk_gb", "seed", "network_xml", "domain_xml")),
    ("state", "running", ("address",)),
    ("state", "rebooted", ("address",)),
]


def build(hypervisor: Hypervisor, wanted: dict) -> dict:
    """Fresh disks on the image, the seed, the network and the domain's definition; off afterwards.

    Does nothing when the guest was built from exactly this already.
    """
    name, lab_dir = wanted["name"], Path(wanted["dir"])
    image, folder = Path(wanted["image_folder"]), lab_dir / "disks"
    ownership.refuse_foreign(hypervisor, name, lab_dir)
    ours = ownership.claim(lab_dir)
    recipe = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()
    if state.read(lab_dir).get("built") == recipe and hypervisor.domain(name) is not None:
        return {"changed": hypervisor.ensure_network(name, wanted["network_xml"], ours["network"])}
    hypervisor.stop(name)
    state.update(lab_dir, built=None, fingerprint=None)  # an older set does not belong to these disks
    folder.mkdir(mode=0o711, exist_ok=True)
    for file in ("vmlinuz", "initrd"):
        disks.copy(image / file, folder / file)
    disks.make_overlay(folder / "system.qcow2", image / "disk.qcow2")
    disks.make_empty(folder / "data.qcow2", wanted["data_disk_gb"])
    disks.write_seed(folder / "seed.iso", wanted["seed"])
    hypervisor.ensure_network(name, wanted["network_xml"], ours["network"])
    hypervisor.ensure_domain(name, wanted["domain_xml"], ours["domain"])
    state.update(
        lab_dir,
        built=recipe,
        image=str(image),
        made={
            "domain": hypervisor.domain(name).UUIDString(),
            "network": hypervisor.network(name).UUIDString(),
            "filter": ours["filter"],
        },
    )
    return {"changed": True}


def run(hypervisor: Hypervisor, wanted: dict) -> dict:
    """Cold boot unless it runs already; returns when its sshd answers."""
    is_new = hypervisor.state(wanted["name"]) != "running"
    hypervisor.start(wanted["name"])
    return {"changed": is_new, **_awaited(hypervisor, wanted)}


def reboot(hypervisor: Hypervisor, wanted: dict) -> dict:
    """Off and on again with the same disks: what the snapshot holds has booted once as it is."""
    guest_agent.shut_down(hypervisor, wanted["name"])
    hypervisor.start(wanted["name"])
    return {"changed": True, **_awaited(hypervisor, wanted)}


def _awaited(hypervisor: Hypervisor, wanted: dict) -> dict:
    resets = boot.wait(hypervisor, wanted["name"], wanted["address"])
    return {"line": f"the guest stood still in its boot and was reset: {resets} times"} if resets else {}


def switch_off(hypervisor: Hypervisor, wanted: dict) -> dict:
    """Power off; the disks stay."""
    return {"changed": hypervisor.stop(wanted["name"])}


def remove(hypervisor: Hypervisor, wanted: dict) -> dict:
    """Undefine what `up` recorded as ours; says what that was."""
    ownership.refuse_foreign(hypervisor, wanted["name"], Path(wanted["dir"]))
    removed = hypervisor.remove(wanted["name"])
    return {"changed": bool(removed), "removed": removed}


ACTIONS = {"built": build, "running": run, "rebooted": reboot, "off": switch_off, "absent": remove}


def main() -> None:
    module = AnsibleModule(argument_spec=OPTIONS, required_if=NEEDED, supports_check_mode=True)
    if module.check_mode:
        module.exit_json(changed=module.params["state"] != "off")
    try:
        with Hypervisor() as hypervisor:
            done = ACTIONS[module.params["state"]](hypervisor, module.params)
    except (LabError, OSError) as error:
        module.fail_json(msg=str(error), lab_code=getattr(error, "code", NOT_READY))
    module.exit_json(**done)


if __name__ == "__main__":
    main()
