"""UNIT: a folder for simulated sessions where fsync costs nothing."""

import tempfile
from pathlib import Path

import pytest

from labkit.simulation.sandbox import temporary


@pytest.fixture(scope="session")
def memory_folder():
    with tempfile.TemporaryDirectory(prefix="lab-simulate-tests-", dir=temporary()) as made:
        yield Path(made)


@pytest.fixture
def memory(memory_folder):
    return Path(tempfile.mkdtemp(dir=memory_folder))
