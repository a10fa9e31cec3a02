#!/usr/bin/python
"""HOST: Ansible's view of labkit.collect; carries no logic of its own."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from labkit import collect, snapshot
from labkit.errors import NOT_READY, LabError

DOCUMENTATION = r"""
module: lab_collect
short_description: Streams a prepared run out of the guest into runs/<run_id>
options:
  name: {type: str, required: true, description: Name of the domain}
  dir: {type: path, required: true, description: The lab's folder}
  address: {type: str, required: true, description: The guest's fixed address}
  gateway: {type: path, required: true, description: The gateway's folder of the run}
  target: {type: path, required: true, description: Where the run goes}
  prepared: {type: dict, required: true, description: What the guest said when it got the run ready}
"""

OPTIONS = {
    "name": {"type": "str", "required": True},
    "dir": {"type": "path", "required": True},
    "address": {"type": "str", "required": True},
    "gateway": {"type": "path", "required": True},
    "target": {"type": "path", "required": True},
    "prepared": {"type": "dict", "required": True},
}


def main() -> None:
    module = AnsibleModule(argument_spec=OPTIONS)
    wanted = module.params
    place = snapshot.Place(wanted["name"], Path(wanted["dir"]), wanted["address"])
    try:
        folder = collect.bring(place, Path(wanted["gateway"]), Path(wanted["target"]), wanted["prepared"])
    except (LabError, OSError) as error:
        module.fail_json(msg=str(error), lab_code=getattr(error, "code", NOT_READY))
    module.exit_json(changed=True, folder=str(folder))


if __name__ == "__main__":
    main()
