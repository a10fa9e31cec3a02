"""GUEST: the Inspector: a stateless second model that says ALLOW or BLOCK. No verdict means BLOCK."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from harness.clock import Clock
from harness.errors import HarnessError
from harness.model import Model
from harness.replies import Reply
from harness.telemetry import events
from harness.telemetry.recorder import Recorder
from harness.text import clean, clip, untrusted

DEADLINE, PATIENCE = 60.0, 30.0  # seconds
RECORDED = 4000  # characters of the reviewed material that the event keeps
_FENCE = re.compile(r"\A```(?:json)?\s*\n(.*)\n```\Z", re.S)


@dataclass(frozen=True)
class Verdict:
    """status: ALLOW or BLOCK. A BLOCK that nobody decided has a reason beginning 'no verdict'."""

    status: str
    reason: str

    @property
    def allowed(self) -> bool:
        return self.status == events.ALLOW


class Inspector:
    """Reviews commands, command output and pages; remembers nothing between two reviews."""

    def __init__(self, model: Model, recorder: Recorder, clock: Clock, prompt: str, model_name: str) -> None:
        self.model, self.recorder, self.clock = model, recorder, clock
        self.prompt, self.model_name = prompt, model_name

    def review(self, kind: str, subject: str, material: str, raw: str = "") -> Verdict:
        """kind: command | output | page. material: exactly what the Worker would get; raw: its source."""
        reply, verdict = None, None
        deadline = max(5.0, min(DEADLINE, self.clock.for_work()))
        try:
            reply = self.model.ask(
                "inspector",
                self._request(kind, subject, material, raw),
                None,
                deadline,
                PATIENCE,
                self.model_name,
            )
            verdict = read_verdict(reply)
        except HarnessError as error:  # late, unreachable, no money, stopped: all of it is no verdict
            verdict = Verdict(events.BLOCK, f"no verdict: {error}")
        self.recorder.event(
            events.INSPECTOR_DECISION,
            reply.usage if reply else None,
            reply.cost if reply else None,
            command_or_input=clip(f"{kind}: {subject}\n{clean(material)}", RECORDED),
            guard_status=verdict.status,
            guard_reason=verdict.reason,
        )
        return verdict

    def _request(self, kind: str, subject: str, material: str, raw: str) -> list[dict]:
        parts = [f"Review: {kind}", f"Subject: {clip(clean(subject), 4000)}", untrusted(material, kind)]
        if raw:
            parts += ["The raw source it was taken from (cut):", untrusted(raw, f"raw {kind}")]
        return [{"role": "system", "content": self.prompt}, {"role": "user", "content": "\n\n".join(parts)}]


def read_verdict(reply: Reply) -> Verdict:
    """ALLOW only for a complete JSON object that says so with a reason; anything else is BLOCK."""
    said = reply.text.strip()
    if fenced := _FENCE.match(said):
        said = fenced.group(1)
    try:
        answer = json.loads(said)
    except (ValueError, RecursionError):
        return Verdict(events.BLOCK, "no verdict: the answer is not JSON")
    if reply.cut or reply.tool_calls or not isinstance(answer, dict):
        return Verdict(events.BLOCK, "no verdict: the answer is not one complete JSON object")
    status, reason = answer.get("verdict"), answer.get("reason")
    if status not in (events.ALLOW, events.BLOCK) or not isinstance(reason, str) or not reason.strip():
        return Verdict(events.BLOCK, "no verdict: neither ALLOW nor BLOCK with a reason")
    return Verdict(status, clean(reason).strip()[:500])
