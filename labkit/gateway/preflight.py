"""HOST: one small paid call before a long run: is the key taken, is there credit, does the model know tools.

Nothing of it is charged to the run's budget; what it cost is said and kept with the run.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import asdict, dataclass
from typing import Any

import httpx2

from labkit.errors import LabError
from labkit.gateway.config import GatewayConfig
from labkit.gateway.keys import redact
from labkit.gateway.providers import Provider
from labkit.gateway.usage import Usage, parse

SECONDS = 30.0  # wall clock of one call, whatever the provider drips meanwhile
MAX_TOKENS = 512  # models that reason first return nothing under a smaller limit
MAX_REPLY_BYTES = 1 << 20
QUOTED_CHARS = 300
TOOL = {
    "type": "function",
    "function": {
        "name": "ready",
        "description": "Say that you can call tools.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
}
SKIP = "`--no-preflight` starts without asking"


@dataclass(frozen=True)
class Answer:
    """What one model did with the call. cost_usd: as billed; None where the provider does not say."""

    model: str
    called_the_tool: bool
    seconds: float
    cost_usd: float | None

    def line(self) -> str:
        how = "called the tool" if self.called_the_tool else "answered in words"
        cost = "cost unknown" if self.cost_usd is None else f"${self.cost_usd:.6f}"
        return f"preflight: {self.model} {how} after {self.seconds:.1f} s, {cost}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def ask_all(config: GatewayConfig, key: str, seconds: float = SECONDS) -> list[Answer]:
    """Ask each model of the run once. Raises LabError (not ready) with what is wrong and what to type.

    seconds: wall clock of one call.
    """
    return [asyncio.run(_ask(config, key, model, seconds)) for model in config.models]


async def _ask(config: GatewayConfig, key: str, model: str, seconds: float) -> Answer:
    provider, begin = Provider(config.base_url, key), time.monotonic()
    try:
        async with asyncio.timeout(seconds):
            status, data = await _call(provider, _body(config, model))
    except (TimeoutError, httpx2.TimeoutException):
        reason = f"provider {config.provider} did not answer within {seconds:.0f} s"
        raise LabError(reason, f"try again later, or another provider; {SKIP}") from None
    except httpx2.HTTPError as error:
        reason = f"provider {config.provider} can't be reached at {config.base_url}: {_words(error)}"
        raise LabError(reason, "check this host's network and base_url in run_providers") from None
    finally:
        await provider.close()
    return _judged(config, model, status, redact(data, key), time.monotonic() - begin)


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


def _body(config: GatewayConfig, model: str) -> bytes:
    text = "Call the tool `ready` with the word `yes`. Do nothing else."
    body = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "tools": [TOOL],
        "tool_choice": "auto",
        "max_completion_tokens": min(MAX_TOKENS, config.max_completion_tokens),
    }
    return json.dumps(body).encode()


async def _call(provider: Provider, content: bytes) -> tuple[int, bytes]:
    """Status and body, read no further than the limit."""
    reply, data = await provider.send(content), bytearray()
    try:
        async for chunk in reply.aiter_bytes():
            data += chunk
            if len(data) > MAX_REPLY_BYTES:
                break
    finally:
        await reply.aclose()
    return reply.status_code, bytes(data)


def _judged(config: GatewayConfig, model: str, status: int, data: bytes, seconds: float) -> Answer:
    reply = parse(data)
    error = reply.get("error") if isinstance(reply, dict) else None
    if error and status < 400:  # a refusal can travel in a 200
        code = error.get("code") if isinstance(error, dict) else None
        status = code if isinstance(code, int) and 400 <= code < 600 else 500
    if status >= 400:
        raise _refused(config, model, status, _quoted(error, data))
    message = _message(reply)
    if message is None:
        reason = f"{config.base_url} answered {status}, but not as an OpenAI-compatible server does"
        raise LabError(reason, f"check base_url of {config.provider} in run_providers")
    usage = Usage()
    usage.read(reply)
    return Answer(model, bool(message.get("tool_calls")), round(seconds, 2), usage.cost_usd)


def _message(reply: object) -> dict | None:
    choices = reply.get("choices") if isinstance(reply, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    return message if isinstance(message, dict) else None


def _quoted(error: object, data: bytes) -> str:
    """The provider's own words, on one line."""
    said = error.get("message") if isinstance(error, dict) else error
    text = said if isinstance(said, str) else data.decode(errors="replace")
    return " ".join(text.split())[:QUOTED_CHARS] or "it gives no reason"


def _refused(config: GatewayConfig, model: str, status: int, said: str) -> LabError:
    who = f"provider {config.provider}"
    if status == 401:
        where = f"the variable {config.key_env} or the file {config.key_file}"
        return LabError(f"{who} does not take the key (401): {said}", f"put a valid one into {where}")
    if status == 402:
        return LabError(
            f"{who} says that the account is out of credit (402): {said}",
            f"add credit there; `lab run --model rehearsal` needs none; {SKIP}",
        )
    if status in (400, 404) and "tool" in said.lower():
        reason = f"{who} offers no tool calling for the model {model} ({status}): {said}"
        return LabError(reason, "the agents work through tools: choose another model with --model")
    if status in (400, 404):
        reason = f"{who} does not take the model {model} ({status}): {said}"
        return LabError(reason, "correct --model and --inspector-model, or run_model in run.yml")
    if status == 403:
        reason = f"{who} does not let this key use the model {model} (403): {said}"
        return LabError(reason, "look at the key's rights there, or choose another model with --model")
    if status == 429:
        reason = f"{who} takes no more calls just now (429): {said}"
        return LabError(reason, f"wait a minute, or look at the key's limits there; {SKIP}")
    return LabError(f"{who} fails ({status}): {said}", f"try again later; {SKIP}")
