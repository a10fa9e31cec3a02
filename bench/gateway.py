"""HOST: what durability and the relay cost: a push beside one only parsed, a relayed call beside one direct.

usage: .venv/bin/python bench/gateway.py [--rounds N] [--calls N] [--guests N] [--events N]

All over HTTP between processes, the sides in turn, medians. The other side of a push is a server of the same
stack and settings that parses the body and answers; a third one parses, appends the body to a file and forces
it (fdatasync), which is what this disk asks of whoever answers durably. The other side of a relayed call is
its provider itself, which takes 50 ms. Then many guests at once, each with a gateway process of its own (it
serves one run); the guests are the harness's own recorder and sender, and each sends what it has twice, as
after a crash.
Prints JSON: milliseconds, ratios, and what was lost or held twice.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from harness.gateway import BATCH, GatewayLink  # noqa: E402
from harness.telemetry import events  # noqa: E402
from harness.telemetry.recorder import Recorder  # noqa: E402
from labkit.gateway import process  # noqa: E402
from labkit.gateway.config import GatewayConfig, token_hash  # noqa: E402
from labkit.gateway.rows import COLUMNS  # noqa: E402

TOKEN = "run-token-of-this-benchmark"
MODEL = "bench/model"
SAID = "a line of output, as commands have them\n" * 30  # 1.2 KB
PROVIDER_SECONDS = 0.05
STEPS = 12  # in the window of a call, as in the reference run on average
WARM_UP = 10
AT_ONCE, BURST = 20, 10  # connections, and single pushes of each in a burst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=500, help="pushes a side; batches: a fifth")
    parser.add_argument("--calls", type=int, default=60, help="model calls a side")
    parser.add_argument("--guests", type=int, default=20)
    parser.add_argument("--events", type=int, default=300, help="that each guest records")
    parser.add_argument("--folder", type=Path, default=ROOT / "build", help="on the disk to be measured")
    parser.add_argument("--serve", choices=["parse", "force", "provider"], help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        return serve(arguments.serve, arguments.port, arguments.file)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-gateway-", dir=arguments.folder) as place:
        print(json.dumps(measure(Path(place), arguments)))


def measure(place: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:
        ports = {name: stack.enter_context(served(name, place / name)) for name in ("parse", "force")}
        parsing, port = ports["parse"], stack.enter_context(served("provider", place))
        gateway = ports["gateway"] = stack.enter_context(gateway_of(place / "gateway", port))
        result = {"fdatasync_ms": floor(place / "floor", arguments.rounds)}
        result["push"] = pushes(ports, 1, arguments.rounds)
        result["push_of_100"] = pushes(ports, BATCH, arguments.rounds // 5, first=1 << 20)
        result["pushes_at_once"] = bursts(gateway, parsing, arguments.rounds // 20)
        result["relayed_call"] = calls(gateway, port, arguments.calls)
    return result | {"guests_at_once": at_once(place, arguments.guests, arguments.events)}


# Servers.


def serve(name: str, port: int, path: Path) -> None:
    """One of the servers to compare with, in the foreground, with the gateway's own server settings."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    from labkit.gateway.listening import listen, server_of

    async def parse(request: Request) -> JSONResponse:
        return JSONResponse({"watermark": len(json.loads(await request.body())["events"])})

    async def force(request: Request) -> JSONResponse:
        body = await request.body()
        rows = json.loads(body)["events"]
        file.write(body)
        os.fdatasync(file.fileno())
        return JSONResponse({"watermark": len(rows)})

    async def provider(request: Request) -> JSONResponse:
        await request.body()
        await asyncio.sleep(PROVIDER_SECONDS)
        message = {"role": "assistant", "content": SAID}
        usage = {"prompt_tokens": 9000, "completion_tokens": 300, "cost": 0.001}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return JSONResponse({"id": "gen", "choices": [choice], "usage": usage})

    handler = {"parse": parse, "force": force, "provider": provider}[name]
    route = "/v1/chat/completions" if name == "provider" else "/v1/events"
    app = Starlette(routes=[Route(route, handler, methods=["POST"])])
    with open(path, "wb", buffering=0) if name == "force" else contextlib.nullcontext() as file:
        asyncio.run(server_of(app).serve(sockets=[listen("127.0.0.1", port)]))


@contextlib.contextmanager
def served(name: str, path: Path) -> Iterator[int]:
    """The port of a server process of this file. path: where it may write."""
    port = free_port()
    command = [sys.executable, __file__, "--serve", name, "--port", str(port), "--file", str(path)]
    child = subprocess.Popen(command)
    try:
        wait_for(port)
        yield port
    finally:
        child.terminate()
        child.wait()


@contextlib.contextmanager
def gateway_of(folder: Path, provider_port: int, run_id: str = "bench") -> Iterator[int]:
    """The port of a real gateway process with its ledger in FOLDER."""
    port = free_port()
    config = GatewayConfig(
        run_id=run_id, bind="127.0.0.1", port=port, provider="local", key_env="", models=(MODEL,),
        base_url=f"http://127.0.0.1:{provider_port}/v1", token_sha256=token_hash(TOKEN), budget_usd=1e6,
        price_input_per_mtok=0.1, price_output_per_mtok=0.2, max_completion_tokens=4096, minutes=60,
    )  # fmt: skip
    process.start(folder, config)
    try:
        yield port
    finally:
        process.stop(folder)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port: int, seconds: float = 60.0) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)
    raise SystemExit(f"nothing listens on port {port}")


# What is measured.


class Side:
    """One server, asked over one connection that stays open: the client costs as little as it can."""

    def __init__(self, port: int, path: str) -> None:
        self.path, self.seconds = path, []
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.connection.connect()
        self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, body: bytes) -> None:
        began = time.perf_counter()
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        self.connection.request("POST", self.path, body, headers)
        reply = self.connection.getresponse()
        said = reply.read()
        self.seconds.append(time.perf_counter() - began)
        if reply.status != 200:
            raise SystemExit(f"{self.path} answered {reply.status}: {said[:300]!r}")

    @property
    def median_ms(self) -> float:
        return round(statistics.median(self.seconds[WARM_UP:]) * 1000, 3)


def in_turn(sides: list[Side], rounds: int, body_of: Callable[[int], bytes]) -> None:
    """Each round asks all the same; who is asked first changes with each round."""
    for number in range(rounds + WARM_UP):
        body, at = body_of(number), number % len(sides)
        for side in sides[at:] + sides[:at]:
            side.ask(body)


def pushes(ports: dict[str, int], size: int, rounds: int, first: int = 1) -> dict[str, Any]:
    sides = {name: Side(port, "/v1/events") for name, port in ports.items()}
    in_turn(list(sides.values()), rounds, lambda number: body_from(first + number * size, size))
    durable, parsed, forced = (sides[name].median_ms for name in ("gateway", "parse", "force"))
    return {
        "rounds": rounds,
        "durable_ms": durable,
        "parsed_ms": parsed,
        "forced_ms": forced,
        "rate_ratio": round(parsed / durable, 3),
        "rate_ratio_of_forced": round(parsed / forced, 3),
    }


def bursts(gateway: int, parsing: int, rounds: int) -> dict[str, Any]:
    """Single rows over several connections at the same time: rates of whole bursts, the sides in turn."""
    servers = {name: [Side(port, "/v1/events") for _ in range(AT_ONCE)]
               for name, port in (("durable", gateway), ("parsed", parsing))}  # fmt: skip
    rates: dict[str, list[float]] = {name: [] for name in servers}
    first = 1 << 30
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for number in range(rounds):
            for name in sorted(servers, reverse=bool(number % 2)):
                starts = range(first, first + AT_ONCE * BURST, BURST)
                bodies = [[body_from(start + n, 1) for n in range(BURST)] for start in starts]
                began = time.perf_counter()
                list(pool.map(lambda side, mine: [side.ask(body) for body in mine], servers[name], bodies))
                rates[name].append(AT_ONCE * BURST / (time.perf_counter() - began))
            first += AT_ONCE * BURST
    durable, parsed = (statistics.median(rates[name]) for name in ("durable", "parsed"))
    return {
        "rounds": rounds,
        "connections": AT_ONCE,
        "durable_per_s": round(durable),
        "parsed_per_s": round(parsed),
        "rate_ratio": round(durable / parsed, 3),
    }


def floor(path: Path, rounds: int) -> float:
    """Appending a row's bytes to a file of this disk and making them durable, nothing else: milliseconds."""
    data, seconds = json.dumps(row(1)).encode(), []
    with open(path, "wb", buffering=0) as file:
        for _ in range(rounds):
            began = time.perf_counter()
            file.write(data)
            os.fdatasync(file.fileno())
            seconds.append(time.perf_counter() - began)
    return round(statistics.median(seconds) * 1000, 3)


def body_from(first: int, size: int) -> bytes:
    return json.dumps({"run_id": "bench", "events": [row(first + at) for at in range(size)]}).encode()


def row(number: int) -> dict[str, object]:
    known = {
        "id": number, "step_number": number // 4, "timestamp": "2026-11-29 20:12:02",
        "elapsed_seconds": number * 0.5, "phase": "EXPLORATION", "event_type": "TOOL_RESULT",
        "tool_name": "execute_shell", "sanitized_output": SAID, "guard_status": "BYPASS",
    }  # fmt: skip
    return {name: known.get(name) for name in COLUMNS}


def calls(gateway: int, provider: int, rounds: int) -> dict[str, Any]:
    body = json.dumps(call()).encode()
    relayed, direct = (Side(port, "/v1/chat/completions") for port in (gateway, provider))
    in_turn([relayed, direct], rounds, lambda number: body)
    return {
        "rounds": rounds,
        "body_bytes": len(body),
        "relayed_ms": relayed.median_ms,
        "direct_ms": direct.median_ms,
        "ratio": round(relayed.median_ms / direct.median_ms, 3),
    }


def call() -> dict[str, Any]:
    """A call as a session makes them: rules, a window of whole steps."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": SAID * 8}]
    for step in range(STEPS):
        function = {"name": "execute_shell", "arguments": json.dumps({"command": f"make part-{step}"})}
        asked = [{"id": f"call_{step}", "type": "function", "function": function}]
        messages.append({"role": "assistant", "content": "On with it.", "tool_calls": asked})
        messages.append({"role": "tool", "tool_call_id": f"call_{step}", "content": SAID * 2})
    return {"model": MODEL, "messages": messages, "user": "worker", "max_completion_tokens": 4096}


# Many guests at once.


def at_once(place: Path, guests: int, rows: int) -> dict[str, Any]:
    """Every guest a run, every run a gateway process of its own; all push at the same time."""
    with contextlib.ExitStack() as stack:
        folders = [place / f"run-{number}" for number in range(guests)]
        ports = [stack.enter_context(gateway_of(folder / "gateway", 9, folder.name)) for folder in folders]
        began = time.monotonic()
        with ThreadPoolExecutor(guests) as pool:
            told = list(pool.map(guest, folders, ports, [rows] * guests))
        seconds = time.monotonic() - began
    found = Counter()
    for folder, recorded in zip(folders, told, strict=True):
        found.update(compared(recorded, folder / "gateway"))
    return {"guests": guests, "gateways": guests, "seconds": round(seconds, 2), **found}


def guest(folder: Path, port: int, count: int) -> list[dict]:
    """Records and sends its rows, starts its sender anew half-way; what it recorded, at the end."""
    url = f"http://127.0.0.1:{port}"
    paths = SimpleNamespace(primary_db=folder / "run.db")
    settings = SimpleNamespace(gateway_url=url, token=TOKEN, run_id=folder.name, paths=paths)
    recorder = Recorder(paths.primary_db, folder / "mirror.db", TOKEN, time.monotonic)
    last = 0
    for part in range(2):
        link = GatewayLink(settings)  # its watermark is 0: it begins with the first row again
        link.start()
        for _ in range(count // 2):
            last = recorder.event(events.TOOL_RESULT, tool_name="execute_shell", sanitized_output=SAID)
            link.wake()
        if part:
            link.flush(last, 120.0)
        link.close()
    recorded = recorder.query(f"SELECT {', '.join(COLUMNS)} FROM execution_logs ORDER BY id")
    return [dict(zip(COLUMNS, values, strict=True)) for values in recorded]


def compared(recorded: list[dict], gateway: Path) -> dict[str, int]:
    lines = [json.loads(line) for line in (gateway / "ledger.jsonl").read_bytes().splitlines()]
    held = [line["body"] for line in lines if line["kind"] == "event"]
    times = Counter(row["id"] for row in held)
    return {
        "recorded": len(recorded),
        "lost": sum(row not in held for row in recorded),
        "held_twice": sum(number - 1 for number in times.values()),
        "out_of_order": int([row["id"] for row in held] != sorted(times)),
        "conflicts": sum(line["kind"] == "conflict" for line in lines),
    }


if __name__ == "__main__":
    main()
