"""TESTS: a process that runs harness sessions in forks of itself: loaded once, struck at will.

Reads orders from standard input, one JSON object a line: run (settings), outside (a folder the session does
not know), strike ({below, at, action, error} or null). Answers each with {"status": of waitpid, "seen":
writes}. Everything is real but the models (in this process) and the run's clock: a step takes ten seconds of
it, so that a session has as many steps as the test wants. Events go over HTTP to the run's gateway.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import secrets
import sys
import threading
import time
import traceback
from pathlib import Path

import httpx2
import openai
import openai.types.chat  # noqa: F401

from harness import __main__ as harness
from harness.clock import wait
from harness.commands import StopFlag
from harness.errors import HarnessError
from harness.settings import from_dict
from harness.world import World

STEP_SECONDS = 10.0
_STEP, _PHASE = re.compile(r"^Step: (\d+)$", re.M), re.compile(r"^Phase: (\w+)$", re.M)
ACTIONS = {"count": 0, "before": 1, "halfway": 2, "after": 3, "fail once": 4, "fail on": 5, "fill": 6}
COST = 0.001


class Model(httpx2.AsyncBaseTransport):
    """The scripted models. Every tool call is one of a kind, so that a second run of it would show."""

    def __init__(self, outside: Path) -> None:
        self.outside, self.side = outside, outside / "side"
        self.seconds, self.first = 0.0, True
        self.asked = threading.Lock()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content)
        purpose = body["user"]
        if purpose == "worker":
            self.seconds += STEP_SECONDS
            self._keep_first(body)
            text, calls = self._worker(body["messages"][-1]["content"])
        else:
            text, calls = _other(purpose), []
        return httpx2.Response(200, json=_completion(body, text, calls))

    def _keep_first(self, body: dict) -> None:
        """What the first call of this process was asked: for the test to look at."""
        if self.first:
            self.first = False
            (self.outside / "first.json").write_text(json.dumps(body["messages"]))

    def _worker(self, status: str) -> tuple[str, list[tuple[str, dict]]]:
        step, phase, name = int(_STEP.search(status)[1]), _PHASE.search(status)[1], secrets.token_hex(6)
        if phase == "FINAL_REPORT":
            if "final report stands" in status or (self.outside / "reported").exists():
                return "The report stands.", []
            (self.outside / "reported").write_text("")
            report = {"filename": "final_report_v1.md", "content": "# Report\n"}
            return "Last.", [("write_scratchpad", report)]
        return f"Step {step}.", self._calls(step, name)

    def _calls(self, step: int, name: str) -> list[tuple[str, dict]]:
        shell = ("execute_shell", {"command": f"echo {name} >> {self.side}; echo done {name}"})
        note = ("write_scratchpad", {"filename": f"n_{name}.md", "content": f"# {name}\n"})
        script = ("write_script", {"filename": f"n_{name}.sh", "content": f"echo {name}\n"})
        if step % 7 == 0:
            return [shell, note]
        if step % 9 == 0:
            gated = f"echo labfetch {name} >> {self.side}; echo external {name}"
            return [("execute_shell", {"command": gated})]
        if step % 3 == 0:
            return [note] if step % 2 else [script]
        return [shell]


def _other(purpose: str) -> str:
    if purpose == "digest":
        return f"Decided: the probe first, because the notes say so ({secrets.token_hex(4)})."
    said = {
        "inspector": '{"verdict": "ALLOW", "reason": "ordinary"}',
        "report": "# Report\n\nWith tools off.",
    }
    return said[purpose]


def _completion(body: dict, text: str, calls: list[tuple[str, dict]]) -> dict:
    message: dict = {"role": "assistant", "content": text}
    if calls:
        made = [{"name": name, "arguments": json.dumps(given)} for name, given in calls]
        message["tool_calls"] = [
            {"id": f"c{secrets.token_hex(5)}", "type": "function", "function": one} for one in made
        ]
    tokens = len(json.dumps(body["messages"])) // 4
    usage = {"prompt_tokens": tokens, "completion_tokens": 40, "total_tokens": tokens + 40, "cost": COST}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    whole = {"id": "c", "object": "chat.completion", "created": 1, "model": body["model"]}
    return whole | {"choices": [choice], "usage": usage}


def _session(order: dict) -> int:
    outside = Path(order["outside"])
    wanted = from_dict(order["run"])
    model = Model(outside)
    own = {"wait": _short_wait, "tick": 0.05, "ballast_bytes": 4096}
    world = World(now=lambda: model.seconds, transport=model, **own)
    if strike := order.get("strike"):
        _arm(strike)
    summary = harness.run(wanted, StopFlag(), world)
    return 0 if summary.get("status") == "sealed" else 1


def _short_wait(seconds: float, stop: threading.Event) -> bool:
    return wait(min(seconds, 0.01), stop)


def _arm(strike: dict) -> None:
    below = ctypes.c_char_p(strike["below"].encode())
    _STRIKE.engine_arm(below, ctypes.c_long(strike["at"]), ACTIONS[strike["action"]], strike.get("error", 0))


def _forked(order: dict) -> dict:
    seen_there, seen_here = os.pipe()
    pid = os.fork()
    if pid:
        os.close(seen_here)
        status = _wait_for(pid, order.get("seconds", 60))
        with os.fdopen(seen_there) as pipe:
            return {"status": status, "seen": int(pipe.read() or 0)}
    code = 70
    try:
        talk = os.open(Path(order["outside"]) / "talk", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(talk, 1), os.dup2(talk, 2)
        code = _session(order)
    except HarnessError as error:  # as python -m harness does
        print(f"harness: {error}", flush=True)
        code = 1
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        seen = _STRIKE.engine_seen()
        _STRIKE.engine_disarm()
        os.write(seen_here, str(seen).encode())
        os._exit(code)


def _wait_for(pid: int, seconds: float) -> int:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.003)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return -1


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(_forked(json.loads(line))), flush=True)


_STRIKE = ctypes.CDLL(None)

if __name__ == "__main__":
    _STRIKE.engine_seen.restype = ctypes.c_long
    openai.AsyncOpenAI(api_key="x", base_url="http://127.0.0.1:9")  # loads what the first client loads
    main()
