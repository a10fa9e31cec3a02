"""GUEST: owns the run's money: what was spent, what a call may cost at worst, what is kept for the report."""

from __future__ import annotations

from dataclasses import dataclass

from harness.settings import Settings

FIRST_CHARS_PER_TOKEN = 3.5  # until the first usage figures calibrate it
LEAST_PROMPT = 60_000  # characters for which the report's reserve is made at least
CAUTION = 0.8  # a worst case assumes denser text than measured


@dataclass(frozen=True)
class Usage:
    """What one reply was charged for. None: the provider did not say.

    cached is a subset of prompt, reasoning a subset of completion: neither is added again.
    """

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    reasoning: int | None = None
    cost: float | None = None


class Purse:
    """Dollars spent and still free. A call whose cost stays unknown counts with its worst case."""

    def __init__(self, budget: float, price_in: float, price_out: float, max_completion_tokens: int) -> None:
        self.budget = budget
        self.price_in, self.price_out = price_in / 1e6, price_out / 1e6
        self.max_completion_tokens = max_completion_tokens
        self.spent = 0.0
        self.unknown = 0.0
        self.chars_per_token = FIRST_CHARS_PER_TOKEN
        self.reserve = self.worst_case(LEAST_PROMPT)

    @classmethod
    def of(cls, settings: Settings) -> Purse:
        prices = settings.price_input_per_mtok, settings.price_output_per_mtok
        return cls(settings.budget_usd, *prices, settings.max_completion_tokens)

    def worst_case(self, chars: int) -> float:
        """Dollars: a prompt of that many characters and the longest reply allowed."""
        tokens_in = chars / max(1.0, self.chars_per_token * CAUTION)
        return tokens_in * self.price_in + self.max_completion_tokens * self.price_out

    def keep_for(self, chars: int) -> None:
        """Keep enough for one call with a prompt of that many characters: the report's."""
        self.reserve = self.worst_case(max(LEAST_PROMPT, chars))

    def allows(self, worst: float, final: bool) -> bool:
        """May a call with this worst case be made? Only the final phase may use the report's reserve."""
        limit = self.budget if final else self.budget - self.reserve
        return self.spent + self.unknown + worst <= limit

    def price(self, usage: Usage) -> float | None:
        """Billed cost first, then the price table, else unknown."""
        if usage.cost is not None:
            return usage.cost
        if usage.prompt is None or usage.completion is None:
            return None
        return usage.prompt * self.price_in + usage.completion * self.price_out

    @staticmethod
    def source(usage: Usage, cost: float | None) -> str | None:
        """Where the cost of a call with this usage is from: a word of api_requests.cost_source."""
        if cost is None:
            return None
        if usage.cost is not None:
            return "billed"
        return "free" if usage.prompt is None else "price table"

    def settle(self, cost: float | None, worst: float) -> None:
        if cost is None:
            self.unknown += worst
        else:
            self.spent += cost

    def calibrate(self, chars: int, prompt_tokens: int | None) -> None:
        """Learn characters per token from a real reply; a provider that lies is kept within reason."""
        if prompt_tokens and chars > 2000:
            measured = min(6.0, max(1.5, chars / prompt_tokens))
            self.chars_per_token += 0.3 * (measured - self.chars_per_token)

    def tokens(self, text: str) -> int:
        return int(len(text) / self.chars_per_token) + 1
