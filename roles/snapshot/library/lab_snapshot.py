#!/usr/bin/python
"""HOST: Ansible's view of labkit.snapshot; carries no logic of its own."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from labkit import snapshot, state
from labkit.errors import NOT_READY, LabError

DOCUMENTATION = r"""
module: lab_snapshot
short_description: Takes the snapshot set, goes back to it with a receipt, marks it verified
options:
  name: {type: str, required: true, description: Name of the domain}
  dir: {type: path, required: true, description: The lab's folder}
  address: {type: str, required: true, description: The guest's fixed address}
  state: {type: str, choices: [taken, reverted, verified], required: true, description: What is wanted}
  fingerprint: {type: str, default: "", description: Hash over what the guest was built from (taken)}
"""

OPTIONS = {
    "name": {"type": "str", "required": True},
    "dir": {"type": "path", "required": True},
    "address": {"type": "str", "required": True},
    "state": {"type": "str", "required": True, "choices": ["taken", "reverted", "verified"]},
    "fingerprint": {"type": "str", "default": ""},
}


def take(place: snapshot.Place, wanted: dict) -> dict:
    """A new set; the guest is off."""
    return {"manifest": snapshot.take(place, wanted["fingerprint"])}


def revert(place: snapshot.Place, _wanted: dict) -> dict:
    """Back to the set, proven; the guest runs."""
    receipt = snapshot.revert(place)
    receipt.demand()
    return {"receipt": receipt.as_dict(), "line": receipt.line()}


def mark_verified(place: snapshot.Place, wanted: dict) -> dict:
    """The set counts from now on; the guest is off."""
    snapshot.mark_verified(place)
    snapshot.switch_off(place)
    state.update(place.dir, fingerprint=snapshot.manifest(place)["fingerprint"], run=None, dirty=None)
    return {}


ACTIONS = {"taken": take, "reverted": revert, "verified": mark_verified}


def main() -> None:
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    wanted = module.params
    if module.check_mode:
        module.exit_json(changed=True)
    place = snapshot.Place(wanted["name"], Path(wanted["dir"]), wanted["address"])
    try:
        module.exit_json(changed=True, **ACTIONS[wanted["state"]](place, wanted))
    except (LabError, OSError) as error:
        module.fail_json(msg=str(error), lab_code=getattr(error, "code", NOT_READY))


if __name__ == "__main__":
    main()
