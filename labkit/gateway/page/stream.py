"""HOST: the page's server-sent events: `row` (its place in events.jsonl as id), `state`, `files`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from labkit.gateway.page.board import Board

BATCH = 200  # events sent between two looks at the clock
LOOK_SECONDS = 0.5
STATE_SECONDS = 5.0  # an unchanged state is told again after so long: a sign of life


class Stream:
    """What browsers hear of the board. `open`: how many listen now."""

    def __init__(self, board: Board) -> None:
        self.board, self.open = board, 0

    async def pieces(self, place: int) -> AsyncIterator[str]:
        """All that lies behind `place`, then what comes, until the board closes.

        A gateway that started again may not have read so far yet: that is waited for, and nothing told twice.
        """
        self.open += 1
        try:
            async for piece in self._told(place):
                yield piece
        finally:
            self.open -= 1

    async def _told(self, place: int) -> AsyncIterator[str]:
        board, told, told_at, files = self.board, "", 0.0, -1
        clock = asyncio.get_running_loop().time
        yield "retry: 1000\n\n"
        while not board.closed:
            for row in board.rows(place, BATCH):
                place = row["n"]
                yield _event("row", json.dumps(row), place)
            if files != len(board.files):
                files = len(board.files)
                yield _event("files", json.dumps(board.files[-200:]))
            state = json.dumps(board.state())
            if state != told or clock() - told_at > STATE_SECONDS:
                told, told_at = state, clock()
                yield _event("state", state)
            await asyncio.sleep(0 if place < board.count else LOOK_SECONDS)


def _event(kind: str, data: str, place: int | None = None) -> str:
    """One server-sent event; `data` is JSON in ASCII and so holds no line break."""
    head = "" if place is None else f"id: {place}\n"
    return f"{head}event: {kind}\ndata: {data}\n\n"
