"""HOST: the receipt of a revert: what was checked, what held, what each part took."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from labkit.errors import EVIDENCE, LabError

COLD = "cold boot"  # the mode of a revert that could not resume


@dataclass
class Receipt:
    """What a revert did and what was checked afterwards.

    checks: name to {"holds": bool, "detail": str}. seconds: name of a part to its duration. boot_id: of the
    guest; empty where it told none. Guests resumed from one snapshot have the same one until they boot.
    """

    name: str
    at: str
    mode: str = "resumed"
    reason: str = ""
    boot_id: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    checks: dict[str, dict[str, Any]] = field(default_factory=dict)

    def check(self, name: str, holds: bool, detail: str) -> None:
        self.checks[name] = {"holds": bool(holds), "detail": detail}

    @property
    def holds(self) -> bool:
        return all(check["holds"] for check in self.checks.values())

    @property
    def broken(self) -> list[str]:
        return [f"{name}: {check['detail']}" for name, check in self.checks.items() if not check["holds"]]

    def line(self) -> str:
        """The receipt for a person."""
        verdict = (
            f"all {len(self.checks)} checks hold" if self.holds else "NOT PROVEN: " + "; ".join(self.broken)
        )
        how = f"{self.mode}: {self.reason}" if self.reason else self.mode
        return f"reverted '{self.name}' in {self.seconds['total']:.1f} s ({how}): {verdict}"

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "holds": self.holds, "broken": self.broken}

    def demand(self) -> None:
        """LabError (evidence) when something does not hold."""
        if not self.holds:
            raise LabError(
                f"the revert of '{self.name}' is not proven: {'; '.join(self.broken)}",
                "do not use this guest; `lab down` and `lab up` build it anew",
                EVIDENCE,
            )
