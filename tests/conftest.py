"""TESTS: makes the repository and tests/support importable, and each machine look alike."""

import os
import resource
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parent
for folder in (TESTS.parent, TESTS / "support"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

# What a CI sets for colours in its log: in what a test reads there would be escapes between the letters.
for name in ("GITHUB_ACTIONS", "FORCE_COLOR", "PY_COLORS", "CLICOLOR_FORCE", "TTY_COMPATIBLE"):
    os.environ.pop(name, None)
os.umask(0o022)  # tests go into their folders as another user
# Records that tests leave open are a thousand descriptors in one process in the end.
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
if 0 <= soft < 20_000:
    most = 20_000 if hard == resource.RLIM_INFINITY else min(hard, 20_000)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))

# The same examples at each run, on any machine; new ones are the soak's. No clock decides over an example.
settings.register_profile(
    "lab",
    derandomize=os.environ.get("LAB_TEST_SOAK") != "1",
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("lab")


@pytest.fixture
def usual_signals():
    """What a test starts takes Ctrl-C and a hang-up, also where the tests run under nohup or behind `&`."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, action) for number, action in usual.items()}
    yield
    for number, action in before.items():
        signal.signal(number, action)
