"""TESTS: the gateway's tests have real gateway processes, and a tiny provider behind them."""

from gateway_process import (  # noqa: F401 - fixtures
    event,
    make_config,
    run_gateway,
    runner_at,
    shared,
    shared_upstream,
    upstream,
)
from live_session import live  # noqa: F401
from watched_gateway import guarded  # noqa: F401
