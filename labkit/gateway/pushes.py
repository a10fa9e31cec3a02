"""HOST: pushes that wait at the same time share one fsync; each is answered when its rows are on the disk.

Where several wait, the disk is waited for in a thread, and the next ones are read meanwhile. A push that
comes alone, as a session's own do, is written at once: to a thread and back takes longer than many an fsync.
"""

from __future__ import annotations

import asyncio

from labkit.gateway.ledger import Answer, Ledger

Waiting = tuple[object, asyncio.Future[Answer]]


class Pushes:
    """The way of the guest's events to the ledger, in the order in which they came. One event loop."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._last: object = None  # who pushed last
        self._waiting: list[Waiting] = []
        self._writer: asyncio.Task[None] | None = None  # while there is something to write

    async def accept(self, payload: object, who: object = None) -> Answer:
        """As Ledger.accept. who: the connection it came by; one that pushes twice in a row is alone."""
        again, self._last = who is not None and who == self._last, who
        if again and self._writer is None:
            return self.ledger.accept(payload)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((payload, future))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write())
        return await future

    async def _write(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                _tell(waiting, await self._written([payload for payload, _ in waiting]))
        finally:
            self._writer = None

    async def _written(self, payloads: list[object]) -> list[Answer | Exception]:
        try:
            if len(payloads) == 1:
                return self.ledger.accept_all(payloads)
            return await asyncio.to_thread(self.ledger.accept_all, payloads)
        except Exception as error:  # nobody may be left waiting
            return [error] * len(payloads)


def _tell(waiting: list[Waiting], answers: list[Answer | Exception]) -> None:
    for (_, future), answer in zip(waiting, answers, strict=True):
        if future.done():  # the server is shutting down
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
