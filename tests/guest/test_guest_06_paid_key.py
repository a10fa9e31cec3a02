"""HOST: the key that each model call carries is sought in the guest, by root there and from here: nowhere."""

import contextlib
import json
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

MODEL = "scripted/model"
STEPS = 8
KEY = guest_lab.CANARY.encode()


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
    """A file that is gone by now holds nothing; one that is empty can't be mapped."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(word) >= 0
    except (FileNotFoundError, ValueError):
        return False


def command_lines() -> list[bytes]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it ended
            found.append(path.read_bytes())
    return found


def wait_for_steps(lab, inventory: str) -> None:
    deadline = time.monotonic() + 400
    while lab.lab("status", "--json", "--inventory", inventory).json["step"] < STEPS:
        assert time.monotonic() < deadline, f"the session did not get to step {STEPS}"
        time.sleep(3)


@pytest.fixture(scope="module")
def paid(lab, built, inventory) -> dict:
    """A session that pays with the key, while it runs: run, token, what went over the wire for some steps."""
    words = ("run", "--minutes", "30", "--discard", "--detach", "--no-preflight", "--json")
    run_id = lab.lab(*words, "--inventory", inventory).json["run"]
    token = yaml.safe_load(lab.ssh("cat /etc/lab-harness/run.json"))["token"].encode()
    with Hypervisor() as hypervisor:
        bridge = hypervisor.network(lab.config.name).bridgeName()
    with Wire(bridge, [token, KEY]) as wire:
        wait_for_steps(lab, inventory)
    return {"run": run_id, "token": token, "wire": wire.seen}


def test_the_key_is_on_no_wire_in_no_memory_and_on_no_disk_of_the_guest(lab, paid, tmp_path):
    """The run's token is in each of these places: it shows that one looks where there is something to see."""
    token, dump = paid["token"], tmp_path / "memory"
    assert paid["wire"] == {token}
    lab.ssh("sync")
    with Hypervisor() as hypervisor:
        how = hypervisor.lib.VIR_DUMP_MEMORY_ONLY | hypervisor.lib.VIR_DUMP_LIVE
        hypervisor.domain(lab.config.name).coreDumpWithFormat(
            str(dump), hypervisor.lib.VIR_DOMAIN_CORE_DUMP_FORMAT_RAW, how
        )
    assert holds(dump, token) and not holds(dump, KEY)
    dump.unlink()
    disks = [lab.config.disks_dir / name for name in ("system.qcow2", "data.qcow2")]
    assert [holds(disk, token) for disk in disks] == [True, False]


def test_the_key_is_in_no_file_of_the_lab_and_in_no_command_line_of_this_host(lab, paid):
    """The frozen disks and the memory image, the gateway's record and logs, the guest's disks."""
    files = [path for path in lab.config.dir.rglob("*") if path.is_file() and not path.is_symlink()]
    assert lab.config.set_dir / "ram.save" in files
    assert [path for path in files if holds(path, KEY)] == []
    lines = command_lines()
    assert [line for line in lines if KEY in line] == [] and any(b"labkit" in line for line in lines)


def test_root_in_the_guest_finds_the_runs_token_and_nowhere_the_key(lab, paid):
    """After the tests from outside: this search leaves what it looks for in the guest's memory."""
    typed = [word.hex()[::-1] for word in (paid["token"], KEY)]
    said = lab.ssh(f"python3 - {' '.join(typed)}", stdin=guest_lab.SCRIPTS / "find_words.py", seconds=900)
    found = json.loads(said.strip().splitlines()[-1])
    assert [place for place, (_, key) in found.items() if key] == []
    seen = {place for place, (token, _) in found.items() if token}
    assert seen == {"traffic", "memory", "files"} and "environments" in found


def test_the_key_is_in_no_file_of_the_run_that_is_collected(lab, paid, inventory):
    lab.lab("finish", "--inventory", inventory)
    lab.lab("watch", "--json", "--inventory", inventory, code=None, seconds=600)
    folder = Path(lab.lab("collect", "--json", "--inventory", inventory).json["folder"])
    assert folder.name == paid["run"]
    assert not [path for path in folder.rglob("*") if path.is_file() and KEY in path.read_bytes()]
