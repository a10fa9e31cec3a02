"""HOST: the simulated provider: an in-process transport for the harness's own model client.

Every fault passes through the harness's transport code: it is an exception of the HTTP client, a status, a
broken body, or a body that says something odd. Nothing is sent anywhere.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx2

from labkit.simulation import failures, wire
from labkit.simulation import script as rows
from labkit.simulation.agents import Agents, Said
from labkit.simulation.chance import Chance
from labkit.simulation.script import Fault, Script
from labkit.simulation.virtual import VirtualTime

_STEP = re.compile(r"^Step: (\d+)$", re.M)
FOR_EVER = 365 * 86400.0
_PATH = ("read_file", "list_workspace")


@dataclass
class Call:
    """One attempt as the provider sees it. read_timeout: seconds the client waits for bytes."""

    purpose: str
    attempt: int
    step: int
    raw: bytes
    body: dict
    read_timeout: float
    connect_timeout: float


class Provider(httpx2.AsyncBaseTransport):
    """Counts what happened: `met` faults by kind, `billed` dollars really charged, `calls` attempts."""

    def __init__(
        self, script: Script, chance: Chance, virtual: VirtualTime, agents: Agents, meter: wire.Meter,
        shown_as: str, sandbox: str, cut: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        self.script, self.chance, self.virtual = script, chance, virtual
        self.agents, self.meter = agents, meter
        self.shown_as, self.sandbox, self.cut = shown_as, sandbox, cut
        self.away = False  # the gateway: nothing reaches a provider then
        self.met: Counter[str] = Counter()
        self.billed, self.calls, self.step = 0.0, 0, 0
        self._attempts: dict[str, tuple[bytes, int]] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        call = self._read(request)
        self.calls += 1
        if self.away:
            raise httpx2.ConnectError("the gateway is away")
        fault, recorded = self._strikes(call), None
        if fault is None or fault.kind in (*rows.REPLY, "slow"):
            recorded = self.agents.recorded(call.purpose)
            fault = (recorded and recorded.fault) or fault
        if recorded is None and (seconds := self.agents.cut_off(call.purpose)) is not None:
            await asyncio.sleep(seconds)
            self.cut()
            await asyncio.sleep(FOR_EVER)
        if fault:
            self.met[fault.kind] += 1
        if fault is None or fault.kind not in failures.NOBODY or recorded:
            await self._wait(call, fault, recorded)
        if fault and fault.kind in rows.TRANSPORT and fault.kind not in ("slow", "silent"):
            return self._failure(call, fault)
        return self._reply(call, fault, recorded)

    def _read(self, request: httpx2.Request) -> Call:
        raw = request.content
        body = json.loads(raw)
        purpose = body.get("user", "worker")
        before, attempts = self._attempts.get(purpose, (b"", 0))
        attempts = attempts + 1 if before == raw else 1
        self._attempts[purpose] = raw, attempts
        if purpose == "worker" and (found := _STEP.search(str(body["messages"][-1].get("content")))):
            self.step = int(found[1])
        limits = request.extensions.get("timeout") or {}
        read, connect = (limits.get(name) or math.inf for name in ("read", "connect"))
        return Call(purpose, attempts, self.step, raw, body, read, connect)

    def _strikes(self, call: Call) -> Fault | None:
        """The first fault whose conditions hold. Each row draws a number at every call."""
        hit = None
        for number, fault in enumerate(self.script.faults):
            drawn = self.chance.stream(f"fault {number}").random()
            if hit is None and self._holds(fault, call) and drawn < fault.probability:
                hit = fault
        return hit

    def _holds(self, fault: Fault, call: Call) -> bool:
        minute = self.virtual.now() / 60
        return (
            call.purpose in fault.purposes
            and (not fault.steps or call.step in fault.steps)
            and fault.from_step <= call.step <= fault.to_step
            and fault.from_minute <= minute < fault.from_minute + fault.minutes
            and call.attempt <= fault.attempts
        )

    async def _wait(self, call: Call, fault: Fault | None, recorded: Any) -> None:
        """The time to a reply. One that comes later than the client's time-out for reading never comes."""
        if recorded and recorded.seconds is not None:  # of a drip they are its whole length
            seconds = 0.0 if fault and fault.kind == "drip" else recorded.seconds
        else:
            seconds = self.chance.seconds(self.script.latency, "latency")
        if fault and fault.kind == "silent":
            seconds = math.inf
        elif fault and fault.kind == "slow":
            seconds += fault.seconds
        if seconds < call.read_timeout:
            return await asyncio.sleep(seconds)
        if math.isinf(call.read_timeout):
            return await asyncio.sleep(FOR_EVER)
        await asyncio.sleep(call.read_timeout)
        self._charge(call, None, billed=bool(fault and fault.billed))
        raise httpx2.ReadTimeout("simulated: no answer")

    def _charge(self, call: Call, said: Said | None, billed: bool = True) -> wire.Bill:
        bill = self.meter.bill(call.purpose, call.raw, said)
        if billed:
            self.billed += bill.dollars
        return bill

    def _failure(self, call: Call, fault: Fault) -> httpx2.Response:
        bill = self._charge(call, None, billed=fault.billed)
        stated = wire.usage(bill, self.script.usage) if fault.billed else None
        return failures.instead(fault, self.calls, stated)

    def _reply(self, call: Call, fault: Fault | None, recorded: Any) -> httpx2.Response:
        said = recorded.said if recorded and recorded.said else self.agents.answer(call.purpose, call.body)
        if fault and fault.kind in rows.REPLY:
            offered = [tool["function"]["name"] for tool in call.body.get("tools", [])]
            said = wire.spoiled(said, fault, offered)
        bill = self._charge(call, said)
        stated = wire.usage(bill, self.script.usage)
        said.calls = [(name, self._in_place(name, given)) for name, given in said.calls]
        return failures.as_json(wire.completion(said, self.calls, call.body.get("model", ""), stated))

    def _in_place(self, tool: str, given: Any) -> Any:
        """The file tools read below the temporary folder what the agents know under the guest's path."""
        if tool not in _PATH or not self.shown_as:
            return given
        return json.loads(json.dumps(given).replace(self.shown_as, self.sandbox))
