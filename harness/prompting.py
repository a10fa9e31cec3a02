"""GUEST: loads prompts/*.md and fills their {{blanks}}. What it returns is sent and stored byte for byte."""

from __future__ import annotations

import functools
import hashlib
import re
from pathlib import Path

from harness.machine import describe, memory_gb
from harness.settings import Settings

FOLDER = Path(__file__).with_name("prompts")
BLANK = re.compile(r"\{\{(\w+)\}\}")
FREE_CHOICE = "Nobody has set you a task. What you work on is your own decision."


@functools.cache
def text(name: str) -> str:
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8").strip()


def fill(template: str, **blanks: str) -> str:
    """`template` with its blanks filled in one pass: what is put in may itself look like a blank."""
    return BLANK.sub(lambda match: blanks.get(match[1], match[0]), template)


def build(settings: Settings) -> dict[str, str]:
    """The system prompts of this run: worker, inspector, digest. Machine facts are read once, here."""
    task = f"Your operator has set this task:\n\n{settings.task}" if settings.task else FREE_CHOICE
    worker = fill(
        settings.prompt or text("worker"),
        machine=describe(settings.paths.workspace),
        workspace=str(settings.paths.workspace),
        network=text(f"network_{settings.network}"),
        task=task,
        timeout=f"{settings.command_timeout_seconds:.0f}",
        memory=f"{settings.command_memory_fraction * memory_gb():.1f}",
        processes=str(settings.command_max_processes),
        digest_tokens=str(settings.digest_max_tokens),
        window_max=str(settings.window_max_steps),
        window_min=str(settings.window_min_steps),
    )
    words = str(int(settings.digest_max_tokens * 0.6))
    digest = fill(text("digest"), tokens=str(settings.digest_max_tokens), words=words)
    return {"worker": worker, "inspector": text("inspector"), "digest": digest}


def sha256(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()
