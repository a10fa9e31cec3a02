"""GUEST: the only file that talks to a model: one deadline a call, own retries, every attempt a row."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.clock import Clock
from harness.errors import EndRun, Interrupted, ModelError, NoMoney
from harness.money import Purse, Usage
from harness.replies import (
    ENDINGS,
    ODD_REPLIES,
    OUTAGES,
    SILENCE,
    UNANSWERED,
    Failure,
    Reply,
    classify,
    read_reply,
)
from harness.settings import Settings
from harness.telemetry import events
from harness.telemetry.recorder import Recorder
from harness.world import REAL, World

ODD_REPLY_ATTEMPTS = 4
NO_TIME = 0.01  # seconds: what is left of a deadline that was used up, in floating point
FIRST_BACKOFF, LONGEST_BACKOFF = 0.25, 60.0  # seconds, where no Retry-After asks for more
LOOK_SECONDS = 1.0  # between two looks, in a pause, at what a person asks
CONNECT_SECONDS = 10.0  # a host that does not even answer is an outage, not a slow reply


@dataclass(frozen=True)
class Request:
    """One call as it goes out, however often it is tried. body: JSON, all of it ASCII."""

    purpose: str
    model: str
    body: bytes


class Model:
    """Chat completions through the gateway. Not safe for more than one thread."""

    def __init__(
        self, settings: Settings, recorder: Recorder, clock: Clock, purse: Purse, stop: threading.Event,
        world: World = REAL,
    ) -> None:  # fmt: skip
        self.settings, self.recorder = settings, recorder
        self.clock, self.purse, self.stop = clock, purse, stop
        self.hurry: Callable[[], float] = lambda: math.inf  # seconds left to an outage by a person who waits
        self.final = False  # set by the loop: the final phase may spend the report's reserve
        self._world, self._loop = world, world.event_loop()
        self._client: Any = None
        self._loading = threading.Thread(target=_import_openai, daemon=True)
        self._loading.start()  # importing the package takes 12-15 s in an emulated guest

    def ready(self) -> None:
        """Wait until the client can be used, or until the run is asked to stop."""
        while self._loading.is_alive() and not self.stop.is_set():
            self._loading.join(0.2)

    def ask(
        self,
        purpose: str,
        messages: list[dict],
        tools: list[dict] | None = None,
        deadline: float | None = None,
        patience: float = 3600.0,
        model: str | None = None,
    ) -> Reply:
        """One usable reply, after retries.

        purpose: worker | inspector | digest | report. deadline: charged seconds for all attempts together
        (silence counts as if it were), each bounded by request_timeout_seconds of wall clock. patience:
        seconds an outage may last, whatever Retry-After asks for.
        Raises ModelError, NoMoney, EndRun or Interrupted.
        """
        request = self._request(purpose, messages, tools, model or self.settings.model)
        ends = self.clock.elapsed() + (deadline or 4 * self.settings.request_timeout_seconds)
        began, odd, attempt = self.clock.now(), 0, 0
        while True:
            attempt += 1
            worst, tried = self._reserve(request), self.clock.now()
            limit = max(1.0, min(self._longest(purpose), ends - self.clock.elapsed()))
            try:
                return self._attempt(request, attempt, limit, worst)
            except Failure as failure:
                odd += failure.kind in ODD_REPLIES
                if failure.kind == SILENCE:
                    ends -= self.clock.now() - tried
                is_over = ends - self.clock.elapsed() < NO_TIME
                if is_over and failure.kind in (*ODD_REPLIES, SILENCE):
                    raise ModelError(failure.kind, failure.text) from failure
                self._give_up_or_wait(failure, attempt, odd, patience - (self.clock.now() - began))

    def _request(self, purpose: str, messages: list[dict], tools: list[dict] | None, model: str) -> Request:
        body = {
            "model": model,
            "messages": messages,
            "max_completion_tokens": self.settings.max_completion_tokens,
            "user": purpose,
        }
        body |= {"tools": tools, "tool_choice": "auto"} if tools else {}
        return Request(purpose, model, json.dumps(body, separators=(",", ":")).encode())

    def _longest(self, purpose: str) -> float:
        """Seconds of wall clock for an attempt. The report's comes after the limits and has its own."""
        longest = self.settings.request_timeout_seconds
        return longest if purpose == "report" else min(longest, self.clock.wall_remaining())

    def _reserve(self, request: Request) -> float:
        worst = self.purse.worst_case(len(request.body))
        if not self.purse.allows(worst, final=self.final or request.purpose == "report"):
            raise NoMoney(f"a {request.purpose} call could cost ${worst:.4f}, more than is left")
        return worst

    def _attempt(self, request: Request, attempt: int, limit: float, worst: float) -> Reply:
        """One request, its row in api_requests, and (when it failed) its API_ERROR event."""
        began = self.clock.now()
        row = {"purpose": request.purpose, "attempt": attempt, "model": request.model}
        try:
            reply = self._settle(read_reply(self._send(request.body, limit)), len(request.body), worst)
            self._row(row, began, "ok", "", reply.finish_reason, reply.usage, reply.cost)
            return reply
        except Interrupted as cut:  # what was sent may be answered and billed: the gateway's ledger has it
            self.purse.settle(None, worst)
            self._row(row, began, "interrupted", str(cut), None, Usage(), None)
            raise
        except Failure as failure:
            if failure.kind == "deadline" and limit >= self.settings.request_timeout_seconds:
                failure.kind = SILENCE  # it was not our own haste
            if failure.kind in UNANSWERED:
                self.clock.give_back(self.clock.now() - began)
            cost = self.purse.price(failure.usage) if failure.billed else 0.0
            self.purse.settle(cost, worst)
            self._row(row, began, failure.kind, failure.text, None, failure.usage, cost)
            said = f"{request.purpose} call, attempt {attempt}: {failure.kind}: {failure.text}"
            self.recorder.event(events.API_ERROR, failure.usage, cost or None, sanitized_output=said[:2000])
            raise

    def _settle(self, reply: Reply, chars: int, worst: float) -> Reply:
        cost = self.purse.price(reply.usage)
        self.purse.settle(cost, worst)
        self.purse.calibrate(chars, reply.usage.prompt)
        return Reply(reply.text, reply.tool_calls, reply.finish_reason, reply.usage, cost)

    def _row(
        self, row: dict, began: float, status: str, detail: str, finish: str | None, usage: Usage,
        cost: float | None,
    ) -> None:  # fmt: skip
        row |= {"step_number": self.recorder.step, "status": status, "detail": detail[:500]}
        row |= {"finish_reason": finish, "cost_usd": cost, "cost_source": self.purse.source(usage, cost)}
        row |= {"prompt_tokens": usage.prompt, "completion_tokens": usage.completion}
        row |= {"cached_tokens": usage.cached, "reasoning_tokens": usage.reasoning}
        row |= {"latency_seconds": round(self.clock.now() - began, 3)}
        self.recorder.insert("api_requests", row, later=True)  # with the event that tells what came of it

    def _give_up_or_wait(self, failure: Failure, attempt: int, odd: int, patience: float) -> None:
        if failure.kind in ENDINGS:
            raise EndRun(ENDINGS[failure.kind])
        outage = failure.kind in OUTAGES
        if not outage and (failure.kind not in ODD_REPLIES or odd >= ODD_REPLY_ATTEMPTS):
            raise ModelError(failure.kind, failure.text)
        pause = max(failure.retry_after, min(FIRST_BACKOFF * 2 ** min(attempt - 1, 8), LONGEST_BACKOFF))
        wall = max(0.0, self.clock.wall_remaining())
        is_last = min(pause, wall) > patience  # it waits all the same: the next call would come too early
        with self.clock.uncharged() if outage else contextlib.nullcontext():
            self._wait(min(pause, max(0.0, patience), wall), failure)
        if self.stop.is_set():
            raise Interrupted("asked to stop while waiting for the model")
        if is_last:
            raise ModelError(failure.kind, f"{failure.text} (given up after {attempt} attempts)")
        if self.clock.wall_remaining() < NO_TIME:
            raise EndRun("wall limit reached")

    def _wait(self, pause: float, failure: Failure) -> None:
        """In slices: a person who wants the run to finish is heard meanwhile, one who stops it as well."""
        while pause > 0 and not self.stop.is_set():
            if pause > self.hurry():
                raise ModelError(failure.kind, f"{failure.text} (given up: the session is to finish)")
            self.clock.wait(min(pause, LOOK_SECONDS), self.stop)
            pause -= LOOK_SECONDS

    def _send(self, body: bytes, limit: float) -> Any:
        self.ready()
        return self._loop.run_until_complete(self._send_async(body, limit))

    async def _send_async(self, body: bytes, limit: float) -> Any:
        """The openai client's own timeout is per read; this one bounds the call, whatever drips."""
        task = asyncio.ensure_future(self._create(body, limit))
        ends = self.clock.now() + limit
        try:
            while not task.done():
                if self.stop.is_set():
                    raise Interrupted("asked to stop during a model call")
                if self.clock.now() >= ends:
                    raise Failure("deadline", f"no complete reply within {limit:.0f} s")
                pause = min(self._world.tick, max(0.01, ends - self.clock.now()))
                await asyncio.wait({task}, timeout=pause)
            return task.result()
        except (Failure, Interrupted):
            raise
        except Exception as error:
            raise classify(error) from error
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=1.0)

    async def _create(self, body: bytes, limit: float) -> Any:
        import openai
        import openai.types.chat

        if self._client is None:
            self._client = openai.AsyncOpenAI(
                api_key=self.settings.token,
                base_url=self.settings.gateway_url.rstrip("/") + "/v1",
                max_retries=0,
                http_client=openai.DefaultAsyncHttpxClient(
                    transport=self._world.transport,
                    trust_env=False,  # the gateway is reached directly, whatever proxy the guest has
                    verify=self.settings.gateway_url.startswith("https"),
                ),
            )
        timeout = openai.Timeout(limit, connect=min(limit, CONNECT_SECONDS))
        # Not chat.completions.create: it walks through what it is given type by type, 15 ms a full window.
        return await self._client.post(
            "/chat/completions",
            cast_to=openai.types.chat.ChatCompletion,
            content=body,
            options={"timeout": timeout},
        )


def _import_openai() -> None:
    import openai  # noqa: F401
    import openai.types.chat  # noqa: F401
