"""TESTS: makes the repository and tests/support importable, however pytest was started; hypothesis's pace."""

import os
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parent
for folder in (TESTS.parent, TESTS / "support"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

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
