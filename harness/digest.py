"""GUEST: keeps the digest: what the Worker still knows of the steps that left its window."""

from __future__ import annotations

from harness.clock import Clock
from harness.context import Context, Step
from harness.errors import EndRun, Interrupted, ModelError, NoMoney
from harness.model import Model
from harness.money import Purse
from harness.replies import Reply
from harness.telemetry import events
from harness.telemetry.recorder import Recorder
from harness.text import clip

PER_MESSAGE = 3000  # characters of a dropped message that the digest model gets to read
DEADLINE = 90.0


class Digest:
    """Refreshes Context.digest at each cut; an empty, overlong or failed one leaves the last good one."""

    def __init__(
        self, model: Model, recorder: Recorder, clock: Clock, purse: Purse, prompt: str, max_tokens: int
    ) -> None:
        self.model, self.recorder, self.clock, self.purse = model, recorder, clock, purse
        self.prompt, self.max_tokens = prompt, max_tokens

    def refresh(self, context: Context, dropped: list[Step]) -> bool:
        """Fold `dropped` into context.digest. True: there is a new digest."""
        messages = self._request(context.digest, dropped)
        for _ in range(2):
            reply, problem = self._ask(messages)
            if not problem:
                context.digest = reply.text.strip()
            self._record(reply, problem, context.digest)
            if reply is None or not problem:
                return not problem
            messages = [
                *messages,
                {"role": "user", "content": f"Unusable: {problem}. Write it again, shorter."},
            ]
        return False

    def _ask(self, messages: list[dict]) -> tuple[Reply | None, str]:
        deadline = max(5.0, min(DEADLINE, self.clock.for_work()))
        try:
            reply = self.model.ask("digest", messages, deadline=deadline, patience=30.0)
        except Interrupted:
            raise
        except (ModelError, NoMoney, EndRun) as error:
            return None, str(error)
        return reply, self._problem(reply)

    def _problem(self, reply: Reply) -> str:
        text = reply.text.strip()
        if not text:
            return "it is empty"
        if reply.cut:
            return "it was cut by the token limit"
        if (size := self.purse.tokens(text)) > self.max_tokens:
            return f"it has about {size} tokens, {self.max_tokens} are allowed"
        return ""

    def _record(self, reply: Reply | None, problem: str, digest: str) -> None:
        usage, cost = (reply.usage, reply.cost) if reply else (None, None)
        said = f"kept the last good digest: {problem}" if problem else digest
        self.recorder.event(events.DIGEST_REFRESH, usage, cost, sanitized_output=said)

    def _request(self, digest: str, dropped: list[Step]) -> list[dict]:
        told = "\n\n".join(render(step) for step in dropped)
        body = f"## The digest so far\n\n{digest or '(none yet)'}\n\n## The steps that are leaving\n\n{told}"
        return [{"role": "system", "content": self.prompt}, {"role": "user", "content": body}]


def render(step: Step) -> str:
    """A step as plain text for the digest model."""
    lines = [f"### Step {step.number}"]
    for message in step.messages:
        text = message.get("content") or ""
        made = [call["function"] for call in message.get("tool_calls") or []]
        calls = [f"{call['name']} {call['arguments']}" for call in made]
        lines.append(clip(f"{message['role']}: {' | '.join([text, *calls]).strip(' |')}", PER_MESSAGE))
    return "\n".join(lines)
