"""TESTS: one synthetic run, built once; tests that change it make their own."""

import pytest
import synthetic_run


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """(folder, counts) of a collected run. Read only."""
    return synthetic_run.build(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def run_dir(built):
    return built[0]


@pytest.fixture
def counts(built):
    return built[1]
