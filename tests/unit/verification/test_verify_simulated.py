"""TESTS: fifty honest runs, texts of all kinds, killed at random points and resumed: nobody is accused."""

from __future__ import annotations

import dataclasses
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from simulated_guest import Crash, Guest

from labkit.verification.verify import examine, text

NONCE = "6b1d" * 8


@pytest.fixture
def place() -> Iterator[Path]:
    """In memory where there is such a place: hundreds of fsyncs prove nothing here."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None, prefix="lab-verify-") as folder:
        yield Path(folder)


@pytest.fixture
def played(place, make_config):
    def play(seed: int):
        chance = random.Random(seed)
        guest = Guest(place, make_config(seed), chance)
        lives, steps = 0, chance.randint(8, 25)
        guest_died = True
        while guest.number < steps and lives < 12:
            try:
                if guest_died:
                    lives, guest_died = lives + 1, False
                    boots(guest, chance, lives)
                    guest.begin()
                guest.step()
            except (Crash, BaseExceptionGroup):
                guest_died = True
                guest.recorder.db.close()
                guest.recorder.mirror.close()
            if guest_died or chance.random() < 0.05:
                guest.gateway.restart()
        if guest_died:
            boots(guest, chance, lives + 1)
            guest.begin()
        if seed % 5:
            guest.seal()
        return guest.collect(), lives

    return play


def boots(guest: Guest, chance: random.Random, life: int) -> None:
    """Most times it went down with its machine, and the host announces the boot that it sees then."""
    if life == 1 or chance.random() < 0.7:
        guest.gateway.config = dataclasses.replace(guest.config, boot_id=f"boot-{life}")
        guest.gateway.restart()


@pytest.fixture
def make_config():
    from gateway_in_process import TOKEN

    from labkit.gateway.config import GatewayConfig, token_hash

    def make(seed: int) -> GatewayConfig:
        return GatewayConfig(
            run_id=f"20261129-201202-{seed:06x}",
            bind="127.0.0.1",
            port=8421,
            provider="paid",
            base_url="http://provider.invalid/v1",
            key_env="",
            models=("test/model",),
            token_sha256=token_hash(TOKEN),
            budget_usd=100.0,
            price_input_per_mtok=0.1,
            price_output_per_mtok=0.2,
            max_completion_tokens=4096,
            minutes=60,
            nonce=NONCE,
        )

    return make


@pytest.mark.parametrize("seed", range(50))
def test_an_honest_run_holds_however_often_it_died(played, seed):
    folder, _ = played(seed)
    report = examine(folder)
    assert report.holds, text(report)


def test_these_runs_do_die_and_do_work(played):
    folder, lives = played(3)
    assert lives > 2 and examine(folder).checked["tool calls"] > 3
