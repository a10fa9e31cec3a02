"""HOST: what is said to the guest without a network: through its agent, and over its virtio channels."""

from __future__ import annotations

import base64
import json
import socket
import time
import xml.etree.ElementTree as ET
from typing import Any

from labkit.errors import UNREACHABLE, LabError
from labkit.guest import Hypervisor


def shut_down(hypervisor: Hypervisor, name: str, seconds: float = 120) -> None:
    """Shut down in order, so that the disks are whole; LabError after `seconds`."""
    deadline = time.monotonic() + seconds
    # Through the agent, since a cloud kernel has no power button and `shutdown` wants a login manager.
    _ask(hypervisor, name, "guest-exec", {"path": "/bin/systemctl", "arg": ["poweroff"]}, deadline)
    with hypervisor.saying(f"shutting down the guest {name}"):
        while hypervisor.known(name).isActive():
            if time.monotonic() > deadline:
                raise LabError(
                    f"the guest '{name}' did not shut down within {seconds:.0f} s",
                    "`lab up` starts over; the console log is in the lab's folder",
                    UNREACHABLE,
                )
            time.sleep(0.2)


def wait(hypervisor: Hypervisor, name: str, seconds: float) -> None:
    """Return once the guest agent answers; LabError (unreachable) after `seconds`."""
    _ask(hypervisor, name, "guest-ping", {}, time.monotonic() + seconds)


def run(
    hypervisor: Hypervisor,
    name: str,
    argv: list[str],
    stdin: bytes = b"",
    seconds: float = 60,
    cure: str = "`lab revert` starts again from the snapshot",
) -> str:
    """Run a program through the guest agent, as root; returns its output. cure: what to type where it fails.

    For the moments in which SSH must not be used yet. Raises LabError (unreachable) when the
    agent does not answer within `seconds`, or the program fails.
    """
    deadline = time.monotonic() + seconds
    reply = _ask(
        hypervisor,
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
        status = _ask(hypervisor, name, "guest-exec-status", {"pid": reply["pid"]}, deadline)
        if status["exited"]:
            break
        if time.monotonic() > deadline:
            raise LabError(
                f"{argv[0]} did not end within {seconds:.0f} s in the guest {name}",
                cure,
                UNREACHABLE,
            )
        time.sleep(0.02)
    output = base64.b64decode(status.get("out-data", "")).decode(errors="replace")
    if status.get("exitcode", 1) != 0:
        complaint = base64.b64decode(status.get("err-data", "")).decode(errors="replace").strip()
        raise LabError(
            f"{argv[0]} failed in the guest {name}: {complaint or output.strip()}",
            f"`lab ssh` looks inside; {cure}",
            UNREACHABLE,
        )
    return output


def ask_over(hypervisor: Hypervisor, channel: str, name: str, line: str, seconds: float = 60) -> str:
    """Send a line over a virtio channel of the guest to the program that waits there; returns its answer.

    Starts nothing in the guest, and is quicker for it. Raises LabError (unreachable) after `seconds`.
    """
    sought = f"./devices/channel/target[@name='{channel}']/../source"
    source = ET.fromstring(hypervisor.known(name).XMLDesc(0)).find(sought)
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


def _ask(hypervisor: Hypervisor, name: str, command: str, arguments: dict[str, Any], deadline: float) -> Any:
    import libvirt_qemu

    request = json.dumps({"execute": command, "arguments": arguments})
    while True:
        try:
            reply = libvirt_qemu.qemuAgentCommand(hypervisor.known(name), request, 10, 0)
            return json.loads(reply)["return"]
        except hypervisor.lib.libvirtError as error:
            if time.monotonic() > deadline or not hypervisor.known(name).isActive():
                raise LabError(
                    f"the agent of the guest {name} does not answer: {error}",
                    "`lab status` shows the guest; its console log is in the lab's folder",
                    UNREACHABLE,
                ) from error
            time.sleep(0.02)
