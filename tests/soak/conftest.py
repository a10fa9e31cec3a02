"""HOST: a bare Debian in a folder, and how a person types in it: made here, thrown away whole."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import fresh_host
import pytest


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> Path:
    """Debian's smallest set and ca-certificates; no sudo, no Python, no git. Copied, never entered."""
    if os.geteuid() != 0:
        pytest.skip("makes a Debian root and enters it: wants root")
    root = tmp_path_factory.mktemp("fresh") / "bare"
    fresh_host.bootstrap(root)
    yield root
    shutil.rmtree(root.parent)


def copy(bare: Path, name: str) -> fresh_host.FreshHost:
    root = bare.parent / name
    subprocess.run(["cp", "-a", "--reflink=auto", bare, root], check=True)
    return fresh_host.FreshHost(root)


@pytest.fixture(scope="module")
def roots_host(bare):
    """A host where only root is; `ben` has an account and nothing else."""
    return copy(bare, "roots")


@pytest.fixture(scope="module")
def annas_host(bare):
    """A host where `anna` may use sudo without a password."""
    host = copy(bare, "annas")
    host.allow_sudo("anna")
    return host
