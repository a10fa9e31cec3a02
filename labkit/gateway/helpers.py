"""HOST: command lines that know a lab, for a gateway that does not: the guest's state, a repair.

They come by the gateway's environment, like the hook of a run's end. A helper runs apart from the gateway: a
repair may end it and start another.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

VARIABLE = "LAB_WATCHDOG"
BUSY = 75  # exit code of a helper that another command on this lab kept out: that is no attempt


@dataclass(frozen=True)
class Helpers:
    """Command lines that know this lab; empty: nobody does.

    guest: prints the guest's state, a word. repair: brings the session back. seal: brings home what there is
    of a session that can't be brought back.
    """

    guest: tuple[str, ...] = ()
    repair: tuple[str, ...] = ()
    seal: tuple[str, ...] = ()
    limits: dict[str, float] = field(default_factory=dict)  # others than the shipped ones, by name

    def environment(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(dataclasses.asdict(self))}

    @classmethod
    def from_environment(cls) -> Helpers:
        given = json.loads(os.environ.get(VARIABLE) or "{}")
        lines = {name: tuple(given.get(name) or ()) for name in ("guest", "repair", "seal")}
        return cls(**lines, limits=given.get("limits") or {})


async def run(line: tuple[str, ...], seconds: float | None, into: Path | None = None) -> tuple[int, str]:
    """Exit code and output of a helper; (124, ...) when it took too long. into: a file instead of a pipe.

    Looked at now and then instead of waited for: this process must be able to end meanwhile.
    """
    target = open(into, "ab") if into else subprocess.PIPE  # noqa: SIM115
    try:
        process = subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=target, stderr=subprocess.STDOUT if into else None,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return 127, f"{line[0]}: {error.strerror}"
    finally:
        if into:
            target.close()
    ends = None if seconds is None else time.monotonic() + seconds
    while process.poll() is None:
        if ends is not None and time.monotonic() > ends:
            process.kill()
            process.wait()
            return 124, "it took too long"
        await asyncio.sleep(0.1)
    said = into.read_bytes()[-4000:] if into else (process.stdout.read(4000) if process.stdout else b"")
    if process.stdout:
        process.stdout.close()
    return process.returncode, said.decode("utf-8", "replace")


def last_line(said: str) -> str:
    return (said.strip().splitlines() or [""])[-1][-300:]
