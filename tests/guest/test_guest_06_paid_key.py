"""HOST: the key that each model call carries is sought wherever root in the guest could look: nowhere."""

import mmap
import shutil
import socket
import threading
import time
from pathlib import Path

import guest_lab
import pytest
import yaml
from loopback import gateway_config

from labkit import config
from labkit.gateway import process
from labkit.guest import Hypervisor

pytestmark = guest_lab.only_in_soak("four minutes")

MODEL = "scripted/model"
STEPS = 8


@pytest.fixture(scope="module")
def upstream(tmp_path_factory) -> str:
    """The address of a provider that takes one key: a gateway with the scripted model and that token."""
    settings = gateway_config(guest_lab.CANARY, models=(MODEL,), minutes=60)
    folder = tmp_path_factory.mktemp("upstream")
    process.start(folder, settings)
    yield f"http://127.0.0.1:{settings.port}/v1"
    process.stop(folder)


@pytest.fixture(scope="module")
def inventory(lab, upstream, tmp_path_factory) -> str:
    """The tests' inventory with that provider in it."""
    folder = tmp_path_factory.mktemp("paid") / "inventory"
    shutil.copytree(lab.inventory, folder)
    path = folder / config.RUN_FILE
    values = yaml.safe_load(path.read_text())
    values["run_providers"]["upstream"] = {"base_url": upstream, "key_env": "OPENROUTER_API_KEY"}
    values |= {"run_provider": "upstream", "run_model": MODEL}
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return str(folder)


class Wire(threading.Thread):
    """What goes over the lab's bridge. A context manager; `seen` has those of the words that passed."""

    def __init__(self, bridge: str, words: list[bytes]) -> None:
        super().__init__(daemon=True)
        self.words, self.seen, self._over = words, set(), threading.Event()
        self._listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self._listener.bind((bridge, 0))
        self._listener.settimeout(0.2)

    def run(self) -> None:
        while not self._over.is_set():
            try:
                frame = self._listener.recv(70_000)
            except TimeoutError:
                continue
            self.seen |= {word for word in self.words if word in frame}

    def __enter__(self) -> "Wire":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()
        self._listener.close()


def holds(path: Path, word: bytes) -> bool:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(word) >= 0


def wait_for_steps(lab, inventory: str) -> None:
    deadline = time.monotonic() + 400
    while lab.lab("status", "--json", "--inventory", inventory).json["step"] < STEPS:
        assert time.monotonic() < deadline, f"the session did not get to step {STEPS}"
        time.sleep(3)


def test_the_key_is_in_no_memory_on_no_disk_and_on_no_wire_of_the_guest(lab, built, inventory, tmp_path):
    words = ("run", "--minutes", "6", "--discard", "--detach", "--no-preflight", "--json")
    run_id = lab.lab(*words, "--inventory", inventory).json["run"]
    token = yaml.safe_load(lab.ssh("cat /etc/lab-harness/run.json"))["token"].encode()
    key = guest_lab.CANARY.encode()
    with Hypervisor() as hypervisor:
        with Wire(hypervisor.network(lab.config.name).bridgeName(), [token, key]) as wire:
            wait_for_steps(lab, inventory)  # each of them was paid for with the key
        assert wire.seen == {token}
        lab.ssh("sync")
        dump = tmp_path / "memory"
        how = hypervisor.lib.VIR_DUMP_MEMORY_ONLY | hypervisor.lib.VIR_DUMP_LIVE
        hypervisor.domain(lab.config.name).coreDumpWithFormat(
            str(dump), hypervisor.lib.VIR_DOMAIN_CORE_DUMP_FORMAT_RAW, how
        )
    # The run's token is in each of these places: it shows that one looks where there is something to see.
    assert holds(dump, token) and not holds(dump, key)
    dump.unlink()
    disks = [lab.config.disks_dir / name for name in ("system.qcow2", "data.qcow2")]
    assert [holds(disk, token) for disk in disks] == [True, False]
    assert [holds(disk, key) for disk in disks] == [False, False]
    lab.lab("finish", "--inventory", inventory)
    lab.lab("watch", "--json", "--inventory", inventory, code=None, seconds=600)
    folder = Path(lab.lab("collect", "--json", "--inventory", inventory).json["folder"])
    assert folder.name == run_id
    assert not [path for path in folder.rglob("*") if path.is_file() and key in path.read_bytes()]
