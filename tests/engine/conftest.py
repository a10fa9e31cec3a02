"""TESTS: what the engine's tests share: one session host a worker, and how much of each test is run."""

from __future__ import annotations

import subprocess

import pytest
from scripted_gateway import ScriptedGateway
from struck import SessionHost, build_strike


@pytest.fixture(scope="session")
def strike(tmp_path_factory):
    try:
        return build_strike(tmp_path_factory.mktemp("strike"))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"needs a C compiler: {error}")


@pytest.fixture(scope="session")
def host(strike):
    host = SessionHost(strike)
    yield host
    host.close()


@pytest.fixture
def gateway():
    with ScriptedGateway() as gateway:
        gateway._server.handle_error = lambda *_: None  # a killed session ends in the middle of a request
        yield gateway
