"""TESTS: the gateway as on Windows and macOS: without what only Linux has, and with what is refused there.

No such machine is at hand: `tests/support/elsewhere` takes those names from labkit's code in its processes
(os.fork, fcntl, O_DSYNC, SIGKILL, AF_UNIX, /proc, ...). As Windows it also refuses reserved names and to
replace a file in use, and writes a line break as two characters where nobody asked for bytes. The locale
knows ASCII only.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from loopback import RUN_ID, free_port, gateway_config, until

from labkit.gateway import pidfile
from labkit.gateway.chain import Chain
from labkit.gateway.page import access

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the stand-in wants Linux"),
]
ROOT = Path(__file__).parents[3]
TOKEN = "run-token-of-this-test"
ODD = "Zeilenende \r\n\u00e4\u00f6\u20ac \u65e5\u672c \ud800"
STOP = """
from labkit.gateway import process
print(process.alive(folder), process.stop(folder), process.alive(folder))
"""
BARE = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "PYTHONIOENCODING": "cp1252"}


class Elsewhere:
    """A run's folder, and processes that see another system."""

    def __init__(self, system: str, folder: Path) -> None:
        self.folder = folder
        self.config = gateway_config(TOKEN, page_bind="127.0.0.1", page_port=free_port(), nonce="n" * 32)
        paths = [str(ROOT / "tests/support/elsewhere"), str(ROOT)]
        self.environment = {
            **os.environ,
            **BARE,
            "LAB_ELSEWHERE": system,
            "PYTHONPATH": os.pathsep.join(paths),
        }
        self.environment |= {"PYTHONWARNDEFAULTENCODING": "1"}
        self.guest = httpx2.Client(
            base_url=f"http://127.0.0.1:{self.config.port}",
            headers={"authorization": f"Bearer {TOKEN}"},
            trust_env=False,
            timeout=30.0,
        )

    def lab_gateway(self) -> subprocess.Popen:
        """`lab gateway FOLDER`, once it answers."""
        command = [sys.executable, "-m", "labkit", "gateway", str(self.folder)]
        with open(self.folder.parent / "said", "ab") as said:
            child = subprocess.Popen(command, env=self.environment, stdout=said, stderr=said, cwd=self.folder)
        until(lambda: child.poll() is not None or pidfile.read(self.folder) or self._answers(), 60)
        until(lambda: child.poll() is not None or self._answers(), 60)
        assert child.poll() is None, (self.folder.parent / "said").read_text()
        return child

    def _answers(self) -> bool:
        try:
            return self.guest.get("/healthz").status_code == 200
        except httpx2.TransportError:
            return False

    def python(self, program: str) -> str:
        """What a program of labkit's own says there, given the folder as `folder`."""
        given = f"import sys; from pathlib import Path; folder = Path(sys.argv[1])\n{program}"
        line = [sys.executable, "-c", given, str(self.folder)]
        done = subprocess.run(line, env=self.environment, capture_output=True, timeout=120)
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout.decode("cp1252").strip()

    def push(self, event, *numbers: int, **values: object) -> dict:
        rows = [event(number, **{"sanitized_output": ODD, **values}) for number in numbers]
        return self.guest.post("/v1/events", content=json.dumps({"run_id": RUN_ID, "events": rows})).json()


@pytest.fixture(params=["windows", "macos"])
def elsewhere(request, tmp_path):
    made = Elsewhere(request.param, tmp_path / "run")
    made.folder.mkdir()
    made.config.save(made.folder)
    yield made
    made.guest.close()
    if pid := pidfile.read(made.folder) or _of_windows(made.folder):
        os.kill(pid, signal.SIGKILL)


def _of_windows(folder: Path) -> int | None:
    """The pid in a file whose second line is another system's."""
    try:
        pid = int((folder / pidfile.FILE_NAME).read_text().splitlines()[0])
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return None
    return pid if str(folder).encode() in command else None


def person(elsewhere: Elsewhere) -> tuple[httpx2.Client, dict]:
    """Logged in at the page; and what its requests must carry."""
    known = access.read(elsewhere.folder)
    http = httpx2.Client(base_url=known["url"], trust_env=False, timeout=30.0)
    assert http.get("/").status_code == 200
    assert http.post("/login", json={"token": known["token"], "name": "J\u00fcrgen"}).status_code == 200
    return http, {"x-lab-csrf": http.get("/state").json()["csrf"]}


def test_a_gateway_takes_events_calls_and_commands_is_stopped_and_goes_on_on_the_same_folder(
    elsewhere, event
):
    child = elsewhere.lab_gateway()
    try:
        assert elsewhere.push(event, *range(1, 31)) == {"watermark": 30}
        call = {"model": "rehearsal", "messages": [{"role": "user", "content": "hello"}], "user": "worker"}
        assert elsewhere.guest.post("/v1/chat/completions", json=call).status_code == 200
        http, proof = person(elsewhere)
        order = {"name": "say", "args": {"text": "gr\u00fc\u00dfe \u20ac"}, "why": "weil \u65e5\u672c"}
        assert http.post("/command", json=order, headers=proof).json() == {"id": 1}
        (told,) = elsewhere.guest.get("/v1/commands?after=0").json()["commands"]
        assert told["args"] == order["args"] and told["who"]["user"] == "J\u00fcrgen"
        assert elsewhere.guest.post("/v1/commands/ack", json={"acknowledged": 1}).status_code == 200
        with http.stream("GET", "/events", headers={"last-event-id": "29"}) as stream:
            assert "id: 30" in itertools.islice(stream.iter_lines(), 500)
    finally:
        child.send_signal(signal.SIGINT)
        ended = child.wait(30)
    assert ended in (0, -signal.SIGINT, 130), (elsewhere.folder.parent / "said").read_text()

    second = elsewhere.lab_gateway()
    assert elsewhere.push(event, *range(25, 41)) == {"watermark": 40}, "what came again is held once"
    assert elsewhere.push(event, 40, sanitized_output="other")["conflicts"] == [40]
    assert http.get("/state").status_code == 200, "the login outlives the restart"
    http.close()
    assert elsewhere.python(STOP) == "True True False"
    second.wait(30)

    start = (
        "from labkit.gateway import config, process; process.start(folder, config.GatewayConfig.load(folder))"
    )
    elsewhere.python(start)
    assert elsewhere.push(event, 41) == {"watermark": 41}
    ask = "from labkit.gateway import commands; print(commands.append(folder, 'pause', why='\\u20ac'), "
    assert elsewhere.python(ask + "[item['state'] for item in commands.listed(folder)])") == (
        "2 ['acknowledged', 'queued']"
    )
    assert elsewhere.python(STOP) == "True True False"
    holds(elsewhere.folder)


TRIED = """
import os, signal, socket

def tried(what):
    try:
        what()
        return "went"
    except Exception as error:
        return type(error).__name__

flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0)
(folder / "held").write_bytes(b"")
with open(folder / "held") as held:
    found = [tried(one) for one in (
        lambda: os.fork, lambda: __import__("fcntl", globals()), lambda: signal.SIGKILL,
        lambda: socket.AF_UNIX,
        lambda: os.O_DSYNC, lambda: os.fdatasync, lambda: open("/proc/self/stat"),
        lambda: os.open(folder, os.O_RDONLY), lambda: os.open(folder / "a:b", flags),
        lambda: os.replace(folder / "gateway.json", folder / "held"), lambda: (folder / "held").unlink(),
    )]
print(*found)
"""
BOTH_LACK = ["AttributeError", "AttributeError", "FileNotFoundError"]
LACKS = {
    "windows": ["AttributeError", "ModuleNotFoundError", "AttributeError", "AttributeError", *BOTH_LACK]
    + ["PermissionError", "OSError", "PermissionError", "PermissionError"],
    "macos": ["went"] * 4 + BOTH_LACK + ["went"] * 4,
}


def test_the_stand_in_lacks_and_refuses_what_it_says(elsewhere, request):
    assert elsewhere.python(TRIED).split() == LACKS[request.node.callspec.params["elsewhere"]]


def holds(folder: Path) -> None:
    """The record is what it would be on Linux, to the byte."""
    written = {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.suffix in (".jsonl", ".json", ".head")
    }
    assert {"ledger.jsonl", "events.jsonl", "requests.jsonl", "commands.jsonl"} <= set(written)
    assert not [name for name, data in written.items() if b"\r" in data]
    events = [json.loads(line) for line in written["events.jsonl"].splitlines()]
    assert [row["id"] for row in events] == list(range(1, 42))
    assert events[0]["sanitized_output"] == ODD
    assert Chain(folder).broken == ""
    assert not [path for path in folder.iterdir() if path.suffix in (".partial", ".lock")]
