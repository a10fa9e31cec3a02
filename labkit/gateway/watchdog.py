"""HOST: notices within a minute that a session is in trouble, says so, has it repaired, or gives it up.

The guest's harness asks for commands every few seconds, whatever its loop does; with each call it says for
how long the loop has given no sign. Silence means that harness, guest or network are gone; a loop without a
sign means that it hangs. The guest's state and a repair are the helpers' matter (helpers.py). Every finding
is a line of watchdog.jsonl and of the ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.gateway.config import GatewayConfig, now_utc
from labkit.gateway.files import JsonLines, read_lines, write_private
from labkit.gateway.helpers import BUSY, Helpers, last_line, run
from labkit.gateway.ledger import Ledger
from labkit.gateway.progress import clock

FILE_NAME = "watchdog.jsonl"
OUTSIDE = "outside.json"
REPAIR_LOG = "watchdog-repair.log"
ASK_SECONDS = 20.0

log = logging.getLogger("labkit.gateway")


@dataclass(frozen=True)
class Limits:
    """Seconds, but for `attempts`: repairs an hour.

    silent: without a call. stuck: without a sign of the loop. first: until the first call after this gateway
    began (a guest boots, a harness is installed). repair, repair_stuck, give_up: from the last sign.
    """

    look: float = 5.0
    silent: float = 30.0
    stuck: float = 50.0
    first: float = 600.0
    repair: float = 75.0
    repair_stuck: float = 300.0  # a long backup or hash may look like a loop that hangs
    pause: float = 240.0  # between two repairs
    give_up: float = 1800.0
    attempts: int = 3


@dataclass
class Signs:
    """What the guest let us hear last. Times are monotonic; loop_at: the last sign of the harness's loop."""

    began: float = field(default_factory=time.monotonic)
    heard_at: float | None = None
    loop_at: float | None = None

    def heard(self, quiet: str | None) -> None:
        """A call of the guest was admitted; `quiet` is its header Lab-Quiet."""
        self.heard_at = time.monotonic()
        if quiet is not None and quiet.isascii() and quiet.isdigit() and len(quiet) < 9:
            self.loop_at = self.heard_at - int(quiet)

    def forgive(self, seconds: float) -> None:
        """This process itself stood still for so long: nobody could be heard."""
        self.began += seconds
        self.heard_at = None if self.heard_at is None else self.heard_at + seconds
        self.loop_at = None if self.loop_at is None else self.loop_at + seconds


@dataclass
class Trouble:
    """kind: `silent`, `stuck`, `never heard`, or `guest ` and its state. since: the last sign, monotonic."""

    kind: str
    since: float


class Watchdog:
    """Looks at one session. Lives in the gateway's event loop; helpers run as processes beside it."""

    def __init__(
        self, run_dir: Path, config: GatewayConfig, ledger: Ledger, signs: Signs, helpers: Helpers,
        outside: Callable[[], dict[str, Any]],
    ) -> None:  # fmt: skip
        """outside: the summary of the run so far, as far as the ledger has it."""
        self.run_dir, self.config, self.ledger = Path(run_dir), config, ledger
        self.signs, self.helpers, self.outside = signs, helpers, outside
        self.limits = dataclasses.replace(Limits(), **helpers.limits)
        self.trouble: Trouble | None = None
        self.given_up = (self.run_dir / OUTSIDE).exists()
        self._lines = JsonLines(self.run_dir / FILE_NAME)
        known = list(read_lines(self._lines.path))
        self._repairs = [item["epoch"] for item in known if item.get("what") == "repair"]
        self._is_open = bool(known) and known[-1].get("what") != "heard again"
        self._repairing: asyncio.Task | None = None
        self._rests_until = 0.0
        self._looked_at = time.monotonic()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.limits.look)
            try:
                await self.look()
            except Exception:  # it must not be the watchdog that ends the gateway
                log.exception("watchdog: a look failed")

    async def look(self) -> None:
        now, before = time.monotonic(), self._looked_at
        self._looked_at = now
        if now - before > 3 * self.limits.look + 5:
            self.signs.forgive(now - before)
            return
        if self.ledger.sealed_at is not None:
            return self._well()
        found = await self._found(now)
        if found is None:
            return self._well()
        if self.trouble is None or found.kind != self.trouble.kind:
            self.trouble = found
            self._write("trouble", trouble=found.kind, text=self.text())
        await self._act(now)

    def alarm(self) -> dict[str, Any] | None:
        """For the page: the trouble there is, in a sentence."""
        if self.trouble is None:
            return {"kind": "given up", "text": "the run was given up"} if self.given_up else None
        return {"kind": self.trouble.kind, "text": self.text()}

    def text(self) -> str:
        trouble = self.trouble
        if trouble is None:
            return ""
        ago = clock(time.monotonic() - trouble.since)
        said = {
            "never heard": f"nothing was heard of the session in {ago}",
            "silent": f"nothing was heard of the session for {ago}: its harness ended or is frozen",
            "stuck": f"the session's loop has given no sign for {ago}: it hangs",
        }.get(trouble.kind, f"nothing was heard of the session for {ago}: {trouble.kind}")  # fmt: skip
        if self.given_up:
            return f"{said}; the run was given up"
        return f"{said}; a repair is under way" if self._repairing else said

    async def _found(self, now: float) -> Trouble | None:
        signs, limits = self.signs, self.limits
        if signs.heard_at is None:
            if now - signs.began <= limits.first:
                return None
            return Trouble(await self._guest("never heard"), signs.began)
        if now - signs.heard_at > limits.silent:
            return Trouble(await self._guest("silent"), signs.heard_at)
        if signs.loop_at is not None and now - signs.loop_at > limits.stuck:
            return Trouble("stuck", signs.loop_at)
        return None

    async def _guest(self, otherwise: str) -> str:
        """`guest paused` and the like where the guest does not run, else `otherwise`."""
        if not self.helpers.guest:
            return otherwise
        code, said = await run(self.helpers.guest, ASK_SECONDS)
        word = said.strip().splitlines()[-1].strip()[:20] if code == 0 and said.strip() else "unknown"
        return otherwise if word in ("running", "unknown") else f"guest {word}"

    def _well(self) -> None:
        self.given_up = self.given_up and self.ledger.sealed_at is None and self.signs.heard_at is None
        if self.trouble is not None or (self._is_open and self.signs.heard_at is not None):
            self.trouble = None
            self._is_open = False
            self._write("heard again", text="the session is heard again")

    async def _act(self, now: float) -> None:
        trouble, limits = self.trouble, self.limits
        if trouble is None or self._repairing or self.given_up:
            return
        lasted = now - trouble.since
        wanted = limits.repair_stuck if trouble.kind == "stuck" else limits.repair
        if now < self._rests_until:
            return
        if self._may_repair(trouble):
            if lasted > wanted:
                self._repairing = asyncio.create_task(self._repair())
        elif lasted > limits.give_up and trouble.kind != "guest paused":  # a paused guest loses nothing
            await self._give_up()

    def _may_repair(self, trouble: Trouble) -> bool:
        """A run of which nothing was ever heard is its start's matter, not ours."""
        recent = [epoch for epoch in self._repairs if time.time() - epoch < 3600]
        is_known = trouble.kind != "never heard" or self.ledger.watermark > 0
        return bool(self.helpers.repair) and is_known and len(recent) < self.limits.attempts

    async def _repair(self) -> None:
        """Started apart from this process, which it may end. Where it does, the next gateway goes on here."""
        try:
            self._repairs.append(time.time())
            self._write("repair", number=len(self._repairs), text=f"repair: {self.text()}")
            code, said = await run(self.helpers.repair, None, self.run_dir / REPAIR_LOG)
            if code == BUSY:
                self._repairs.pop()
            self._write("repaired" if code == 0 else "not repaired", code=code, text=last_line(said))
        finally:
            self._rests_until = time.monotonic() + self.limits.pause  # a session takes a while to be heard
            self._repairing = None

    async def _give_up(self) -> None:
        """Sealed from outside: a summary of what the ledger has, and who can do more is asked to."""
        self.given_up = True
        summary = {**self.outside(), "reason": self.text(), "time": now_utc()}
        write_private(self.run_dir / OUTSIDE, json.dumps(summary, indent=1) + "\n")
        self._write("given up", text=f"given up: {self.text()}")
        if self.helpers.seal:
            code, said = await run(self.helpers.seal, None, self.run_dir / REPAIR_LOG)
            self._write("collected" if code == 0 else "not collected", code=code, text=last_line(said))

    def _write(self, what: str, **facts: Any) -> None:
        item = {"time": now_utc(), "epoch": time.time(), "what": what, **facts}
        log.warning("watchdog: %s: %s", what, facts.get("text", ""))
        self._is_open = what != "heard again"
        with contextlib.suppress(OSError):  # a full disk: the log has it, and the page
            self.ledger.note("watchdog", what=what, **facts)
            self._lines.append([item])


def unresolved(run_dir: Path) -> str:
    """The last that the watchdog said of a trouble that is not over; '' when there is none."""
    last: dict[str, Any] = {}
    for item in read_lines(Path(run_dir) / FILE_NAME):
        last = item
    return "" if last.get("what") in (None, "heard again") else f"{last['what']}: {last.get('text', '')}"
