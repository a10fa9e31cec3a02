"""HOST: a lab of the tests' own: its inventory, the `lab` command as a person types it, and its end.

Everything of it lies below STATE, beside the default lab; only the image cache is shared.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from free_network import free_network

from labkit import config, session, snapshot
from labkit.guest import Hypervisor, definition
from labkit.receipt import Receipt

REPO = config.REPO
NAME = "labtest"
STATE = Path("/var/lib/vm-lab-test")
LOCK = Path("/var/lib/vm-lab-test.lock")  # held by the guest tests; .ci/run knows this name too
SCRIPTS = REPO / "tests" / "guest" / "scripts"
# Small, so that saving is quick. Its network is chosen on each host: other labs may run beside it.
GUEST = {"lab_name": NAME, "lab_state_dir": str(STATE), "lab_memory_mb": 3072}
RUN = {"run_gateway_port": 8431}
# Stands for a provider key of the person who runs the tests; must never be found in the guest.
CANARY = "sk-canary-7d1b0c5f2e"
KEEP = os.environ.get("LAB_TEST_KEEP") == "1"
SOAK = os.environ.get("LAB_TEST_SOAK") == "1"


# A domain of our name that `lab up` did not make.
STRANGER = f"""<domain type="qemu"><name>{NAME}</name><uuid>5a1d0c1e-0000-4000-8000-00000000f00d</uuid>
<memory unit="MiB">64</memory><os><type arch="x86_64" machine="q35">hvm</type></os></domain>"""


def only_in_soak(why: str) -> pytest.MarkDecorator:
    """The mark of a test that is too long for each change."""
    return pytest.mark.skipif(not SOAK, reason=f"{why}: LAB_TEST_SOAK=1")


def define_stranger() -> None:
    with Hypervisor() as hypervisor:
        hypervisor.connection.defineXML(STRANGER)


def stranger() -> str | None:
    """The definition of the stranger, or None where there is none (any more)."""
    with Hypervisor() as hypervisor:
        domain = hypervisor.domain(NAME)
        ours = domain is not None and domain.UUIDString() in STRANGER
        return definition(domain) if ours else None


def remove_stranger() -> None:
    if stranger() is not None:
        with Hypervisor() as hypervisor:
            hypervisor.domain(NAME).undefine()


@dataclass(frozen=True)
class Done:
    """What a command did: exit code, standard output, standard error."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class GuestLab:
    """The tests' lab. Commands are real processes; what they say is passed on as it comes."""

    def __init__(self) -> None:
        self.inventory = STATE / "inventory"
        self.runs = STATE / "runs"
        self.began = time.monotonic()

    def write_files(self) -> None:
        """The shipped inventory with our names in it, and the image cache of this host.

        A guest that was kept keeps its addresses too.
        """
        network = self._network_kept() or free_network(151)
        images = config.load().images_dir
        for folder in (STATE, self.runs, images):
            folder.mkdir(parents=True, exist_ok=True)
        if not (STATE / "images").exists():
            (STATE / "images").symlink_to(images)
        shutil.rmtree(self.inventory, ignore_errors=True)
        shutil.copytree(config.SHIPPED_INVENTORY, self.inventory)
        for file, ours in ((config.GUEST_FILE, GUEST | network), (config.RUN_FILE, RUN)):
            path = self.inventory / file
            path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | ours, sort_keys=False))

    def _network_kept(self) -> dict[str, str]:
        kept = self.inventory / config.GUEST_FILE
        if not KEEP or not kept.is_file():
            return {}
        values = yaml.safe_load(kept.read_text())
        return {name: values[name] for name in free_network(151)}

    @property
    def config(self) -> config.Lab:
        return config.load(self.inventory)

    @property
    def place(self) -> snapshot.Place:
        return session.place(self.config)

    def lab(self, *words: str, code: int | None = 0, stdin: Path | None = None, seconds: float = 600) -> Done:
        """`lab WORDS`, which must end with that exit code (None: any)."""
        return self.command(str(REPO / "lab"), *words, code=code, stdin=stdin, seconds=seconds)

    def ssh(self, command: str, code: int | None = 0, stdin: Path | None = None, seconds: float = 600) -> str:
        """Standard output of a shell command that root ran in the guest."""
        return self.lab("ssh", "--", command, code=code, stdin=stdin, seconds=seconds).out

    def as_worker(self, script: str) -> str:
        """A script of tests/guest/scripts, run in the guest as the Worker. Returns its last line."""
        done = self.lab("ssh", "--", "sudo -n -H -u worker sh -s", stdin=SCRIPTS / script, seconds=2000)
        return done.out.strip().splitlines()[-1]

    def playbook(self, name: str, *options: str, fast: bool = True) -> Done:
        """ansible-playbook by hand. fast: with Mitogen, as `lab` does it; otherwise as Ansible ships."""
        from labkit import playbooks

        environment = playbooks._environment() if fast else {"PYTHONPATH": str(REPO)}
        program = str(REPO / ".venv" / "bin" / "ansible-playbook")
        inventory = str(self.inventory / "hosts.yml")
        return self.command(
            program, "-i", inventory, f"playbooks/{name}.yml", *options, environment=environment
        )

    def until_heard(self) -> None:
        """Wait for the first rows of the session: its harness takes seconds to start, more when emulated."""
        end = time.monotonic() + 300
        while self.lab("status", "--json").json["quiet_seconds"] is None:
            assert time.monotonic() < end, "nothing was heard of the session in five minutes"
            time.sleep(2)

    def resume(self) -> Receipt:
        """The guest fresh from the snapshot, and running: what `lab run` does before a session."""
        receipt = snapshot.revert(self.place)
        receipt.demand()
        return receipt

    def command(
        self,
        *words: str,
        code: int | None = 0,
        stdin: Path | None = None,
        seconds: float = 600,
        environment: dict[str, str] | None = None,
    ) -> Done:
        """Run a command to its end; its standard error is shown as it comes."""
        self.say("$ " + shlex.join([Path(words[0]).name, *words[1:]]))
        with open(stdin or os.devnull, "rb") as source:
            process = subprocess.Popen(
                words,
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                cwd=REPO,
                env=self.environment() | (environment or {}),
                start_new_session=True,
            )
        done = self._wait(process, seconds)
        if code is not None and done.code != code:
            talk = f"{done.err[-3000:]}\n{done.out[-3000:]}"
            raise AssertionError(f"{shlex.join(words)} ended with {done.code}, not {code}:\n{talk}")
        return done

    def _wait(self, process: subprocess.Popen, seconds: float) -> Done:
        said: list[str] = []
        listener = threading.Thread(target=self._pass_on, args=(process.stderr, said), daemon=True)
        listener.start()
        guillotine = threading.Timer(seconds, self._end, [process])
        guillotine.start()
        try:
            out = process.stdout.read()
            code = process.wait()
            listener.join(5)
            return Done(code, out, "".join(said))
        finally:
            guillotine.cancel()
            self._end(process)

    @staticmethod
    def _end(process: subprocess.Popen) -> None:
        """The command and what it started in its group; a detached gateway is not in it."""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _pass_on(self, stream: Any, said: list[str]) -> None:
        for line in stream:
            said.append(line)
            self.say("  " + line.rstrip())

    def say(self, text: str) -> None:
        seconds = int(time.monotonic() - self.began)
        print(f"[{seconds // 60:2d}:{seconds % 60:02d}] {text}", file=sys.stderr, flush=True)

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "LAB_INVENTORY": str(self.inventory),
            "LAB_RUNS": str(self.runs),
            "LAB_LOCK": "requirements-test.lock",
            "OPENROUTER_API_KEY": CANARY,
            "COLUMNS": "160",
        }
