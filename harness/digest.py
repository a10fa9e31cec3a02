"""GUEST: keeps the digest: what the Worker still knows of the steps that left its window."""

from __future__ import annotations

from harness.clock import Clock
from harness.context import Context, Step
from harness.errors import EndRun, Interrupted, ModelError, NoMoney
from harness.mentions import mark_missing
from harness.model import Model
from harness.money import Purse
from harness.replies import Reply
from harness.telemetry import events
from harness.telemetry.recorder import Recorder
from harness.text import clean, clip

PER_MESSAGE = 3000  # characters of a dropped message that the digest model gets to read
DEADLINE = 90.0
PLAIN_PER_MESSAGE, PLAIN_PER_STEP = 160, 300
PENDING_WINDOWS = 2  # full windows of steps that may wait for a digest
LEAST_CHARS, MOST_CHARS = 1.5, 8.0  # a token; a provider that counts otherwise is not believed


class Digest:
    """Refreshes Context.digest; an empty, overlong or failed one leaves the last good one.

    What it could not take up stays pending for the next time.
    """

    def __init__(
        self, model: Model, recorder: Recorder, clock: Clock, purse: Purse, prompt: str, max_tokens: int
    ) -> None:
        self.model, self.recorder, self.clock, self.purse = model, recorder, clock, purse
        self.prompt, self.max_tokens = prompt, max_tokens
        self.workspace = model.settings.paths.workspace

    def refresh(self, context: Context) -> bool:
        """Fold context.pending into context.digest. True: there is a new digest of the model's."""
        messages = self._request(context.digest, context.pending)
        for _ in range(2):
            reply, text, problem = self._ask(messages)
            if not problem:
                context.digest, context.pending = text, []
            self._record(reply, problem, context.digest)
            if reply is None or not problem:
                break
            messages = [
                *messages,
                {"role": "user", "content": f"Unusable: {problem}. Write it again, shorter."},
            ]
        if problem:
            self._make_do(context)
        return not problem

    def _make_do(self, context: Context) -> None:
        """Never empty: without a good one yet, one that no model wrote. What is pending has a limit."""
        context.digest = context.digest or self._plain(context.pending)
        context.pending = context.pending[-PENDING_WINDOWS * context.max_steps :]

    def _ask(self, messages: list[dict]) -> tuple[Reply | None, str, str]:
        """The reply, the digest in it, and why it is of no use ('': it is)."""
        deadline = max(5.0, min(DEADLINE, self.clock.for_work()))
        try:
            reply = self.model.ask("digest", messages, deadline=deadline, patience=30.0)
        except Interrupted:
            raise
        except (ModelError, NoMoney, EndRun) as error:
            return None, "", str(error)
        # It stands in every later prompt: half a character pair in it, and none could be sent any more.
        text = mark_missing(clean(reply.text).strip(), self.workspace, self.recorder)
        return reply, text, self._problem(reply, text)

    def _problem(self, reply: Reply, text: str) -> str:
        if not text:
            return "it is empty"
        if reply.cut:
            return "it was cut by the token limit"
        if (size := self.size(reply, text)) > self.max_tokens:
            return f"it has about {size} tokens, {self.max_tokens} are allowed"
        return ""

    def size(self, reply: Reply, text: str) -> int:
        """Tokens: as the provider counted them where that is likely, else by its characters."""
        counted = (reply.usage.completion or 0) - (reply.usage.reasoning or 0)
        is_likely = counted > 0 and LEAST_CHARS <= len(reply.text) / counted <= MOST_CHARS
        if not is_likely:
            return self.purse.tokens(text)
        return counted + self.purse.tokens(text[len(reply.text.strip()) :]) - 1

    def _plain(self, dropped: list[Step]) -> str:
        """Newest first until the room is used up: which calls were made, and how their results began."""
        lines = ["(No model wrote this digest: the latest calls, newest first.)"]
        for step in reversed(dropped):
            line = "- " + " ".join(render(step, PLAIN_PER_MESSAGE).split())[:PLAIN_PER_STEP]
            if self.purse.tokens("\n".join([*lines, line])) > self.max_tokens:
                break
            lines.append(line)
        return mark_missing("\n".join(lines), self.workspace, self.recorder)

    def _record(self, reply: Reply | None, problem: str, digest: str) -> None:
        usage, cost = (reply.usage, reply.cost) if reply else (None, None)
        said = f"kept the last good digest: {problem}" if problem else digest
        self.recorder.event(events.DIGEST_REFRESH, usage, cost, sanitized_output=said)

    def _request(self, digest: str, dropped: list[Step]) -> list[dict]:
        told = "\n\n".join(render(step) for step in dropped)
        body = f"## The digest so far\n\n{digest or '(none yet)'}\n\n## The steps that are leaving\n\n{told}"
        return [{"role": "system", "content": self.prompt}, {"role": "user", "content": body}]


def render(step: Step, per_message: int = PER_MESSAGE) -> str:
    """A step as plain text for the digest model."""
    lines = [f"### Step {step.number}"]
    for message in step.messages:
        text = message.get("content") or ""
        made = [call["function"] for call in message.get("tool_calls") or []]
        calls = [f"{call['name']} {call['arguments']}" for call in made]
        lines.append(clip(f"{message['role']}: {' | '.join([text, *calls]).strip(' |')}", per_message))
    return "\n".join(lines)
