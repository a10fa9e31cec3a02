"""GUEST: a fork bomb and a memory hog of root's, in groups as the harness makes them; prints JSON.

usage, as root in a unit with Delegate=yes: python3 - PATH-OF-THE-HARNESS
"""

import json
import subprocess
import sys
import time

sys.path.insert(0, sys.argv[1])
from harness.tools import cgroups

LIMITS = cgroups.Limits(memory=100_000_000, processes=60)
COMMANDS = {
    "bomb": "bomb() { bomb | bomb & }; bomb; sleep 20",
    "hog": "head -c 2000000000 /dev/zero | tail -c 1900000000 | wc -c",
    "honest": "echo still here",
}


def run(name: str, command: str) -> dict:
    group = cgroups.create(f"step-{name}", LIMITS)
    line = f'read -r _; exec sudo -n bash -c "{command}"'  # root's own processes count too
    process = subprocess.Popen(["bash", "-c", line], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    cgroups.move(group, process.pid)
    began = time.monotonic()
    try:
        said, _ = process.communicate("go\n", timeout=15)
    except subprocess.TimeoutExpired:
        cgroups.kill(group)
        said, _ = process.communicate(timeout=30)
    found = {"limited": cgroups.is_limited(group), "said": said.strip(), "met": cgroups.met(group)}
    ends = time.monotonic() + 10
    while cgroups.alive(f"step-{name}") and time.monotonic() < ends:
        time.sleep(0.2)
    return {**found, "left": cgroups.alive(f"step-{name}"), "seconds": time.monotonic() - began}


print(json.dumps({name: run(name, command) for name, command in COMMANDS.items()}))
