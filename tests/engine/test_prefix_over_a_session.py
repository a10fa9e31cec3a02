"""ENGINE: what a provider can cache of a prompt, over whole sessions: it changes for three reasons only.

A phase begins; the window is cut; the last rung against circling cuts it and withdraws a tool for some steps.
"""

import json
import re
from typing import ClassVar, NamedTuple

import pytest

from harness.repetition import CHANGE_STEPS
from labkit.simulation import Script, simulate
from labkit.simulation.provider import Provider

STEPS = 500
MINUTES = 130.0
_STEP = re.compile(r"^Step: (\d+)$", re.M)
CIRCLES = {"kind": "loop", "command": "ls -la tools", "from_step": 200, "to_step": 240}
SAME = {"match": "^ls -la tools", "output": "total 0\n"}
TROUBLE = [
    {"kind": kind, "purposes": ["worker", "digest"], "probability": 0.02, "seconds": 20, "attempts": 3}
    for kind in ("server", "reset", "empty", "words_only", "many_calls", "malformed_arguments", "html")
]
DAYS = {
    "an honest day": ({}, {}),
    "a Worker that circles": ({"faults": [CIRCLES | {"purposes": ["worker"]}], "commands": [SAME]}, {}),
    "a bad provider": ({"faults": TROUBLE}, {}),
    "a small window": ({"faults": TROUBLE}, {"window_max_steps": 7, "window_min_steps": 3}),
}


class Asked(NamedTuple):
    """A request of the Worker's: its step, and its bytes up to the status message, which closes it."""

    step: int
    tools: bytes
    messages: list[bytes]

    def begins(self, later: "Asked") -> bool:
        """Whether all of it stands at the beginning of the later one."""
        return self.tools == later.tools and later.messages[: len(self.messages)] == self.messages


def as_bytes(value) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


class Recording(Provider):
    """The simulated provider, and what it was asked as the Worker's model."""

    asked: ClassVar[list[Asked]] = []

    def _read(self, request):
        call = super()._read(request)
        if call.purpose == "worker":
            body = call.body
            assert as_bytes(body) == call.raw, "what is compared here is what was sent"
            step = int(_STEP.search(body["messages"][-1]["content"])[1])
            before_status = [as_bytes(message) for message in body["messages"][:-1]]
            self.asked.append(Asked(step, as_bytes(body.get("tools")), before_status))
        return call


def steps_with(result, where: str) -> set[int]:
    return {step for (step,) in result.query(f"SELECT step_number FROM execution_logs WHERE {where}")}


@pytest.fixture
def recording(monkeypatch):
    monkeypatch.setattr(Recording, "asked", [])
    monkeypatch.setattr("labkit.simulation.session.Provider", Recording)
    return Recording.asked


@pytest.mark.parametrize("day", DAYS)
def test_over_a_session_of_500_steps_the_prompt_begins_as_before_but_for_phases_cuts_and_a_forced_change(
    recording, tmp_path, day
):
    keys, settings = DAYS[day]
    result = simulate(Script.from_dict(keys), minutes=MINUTES, settings=settings, folder=tmp_path / "s")
    assert result.summary["steps"] > STEPS
    phases = steps_with(result, "event_type = 'PHASE_STARTED'")
    cuts = steps_with(result, "event_type = 'DIGEST_REFRESH'")
    forced = steps_with(result, "event_type = 'GUARD' AND guard_reason LIKE 'repetition: change:%'")
    over = {step + CHANGE_STEPS for step in forced}  # the tool is offered again
    pairs = zip(recording, recording[1:], strict=False)
    changed = [(earlier, later) for earlier, later in pairs if not earlier.begins(later)]
    assert {later.step for _, later in changed} - phases - cuts - forced - over == set()
    for earlier, later in changed:
        is_cut = later.step in cuts - phases - forced - over
        assert not is_cut or earlier.messages[2:4] != later.messages[2:4], "a cut takes the oldest step away"
    assert len(cuts) > STEPS / 25 and len(phases) == 4
    assert forced or day != "a Worker that circles"
