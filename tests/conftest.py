"""TESTS: makes the repository and tests/support importable, however pytest was started."""

import sys
from pathlib import Path

TESTS = Path(__file__).parent
for folder in (TESTS.parent, TESTS / "support"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
