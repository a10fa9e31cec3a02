"""TESTS: `python -m harness` on a clock that each call of the Worker moves on: no machine is too slow for it.

usage: stepped_harness.py SECONDS RUN.JSON    everything but the run's clock is real
"""

import json
import sys
from functools import partial

import httpx2

from harness import __main__ as harness
from harness.world import World


class Stepping(httpx2.AsyncHTTPTransport):
    """Passes every call on; seconds: how far the clock has come."""

    def __init__(self, step: float) -> None:
        super().__init__()
        self.step, self.seconds = step, 0.0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if json.loads(request.content)["user"] == "worker":
            self.seconds += self.step
        return await super().handle_async_request(request)


if __name__ == "__main__":
    stepping = Stepping(float(sys.argv[1]))
    world = World(now=lambda: stepping.seconds, transport=stepping)
    harness.run = partial(harness.run, world=world)
    sys.exit(harness.main(sys.argv[2:]))
