"""HOST: what all runs of this host spent on one day (UTC), and the cap on it.

One file a day and a run: FOLDER/<day>/<run_id>.json. A gateway writes its own file only and adds up all of
them, its own worst case written first: two gateways at once may both refuse, never both pass.
"""

from __future__ import annotations

import json
from pathlib import Path

from labkit.gateway.files import put_in_place

FOLDER = "spending"  # beside the labs' folders


class Days:
    """The share of one run in each day. cap_usd 0: no cap, nothing is written."""

    def __init__(self, folder: Path | None, run_id: str, cap_usd: float) -> None:
        self.folder, self.run_id = folder, run_id
        self.cap_usd = cap_usd if folder else 0.0
        self._own: dict[str, float] = {}

    def add(self, day: str, usd: float) -> None:
        """Count dollars (charged or set aside; negative: given back) for a day, whatever the cap.

        OSError: they are counted, and the day's file is behind until the next time.
        """
        if self.cap_usd:
            self._own[day] = max(0.0, self._own.get(day, 0.0) + usd)
            self._write(day)

    def takes(self, day: str, usd: float) -> bool:
        """Set dollars aside for a day; False when the cap would not hold them.

        Nothing is set aside then, nor by an OSError: of a full disk, or of a share that cannot be read.
        """
        if not self.cap_usd:
            return True
        holds = False
        try:
            self.add(day, usd)
            holds = self.spent(day) <= self.cap_usd
        finally:
            if not holds:
                self.add(day, -usd)
        return holds

    def spent(self, day: str) -> float:
        """Dollars of that day, of all runs, what is set aside included."""
        if not self.cap_usd:
            return 0.0
        others = (path for path in self._of(day).glob("*.json") if path.stem != self.run_id)
        return self._own.get(day, 0.0) + sum(map(_read, others))

    def begin(self, charged: dict[str, float]) -> None:
        """At start: the run's own days as its ledger has them; what a dead process had set aside is over."""
        for day, usd in charged.items():
            self.add(day, usd)

    def _of(self, day: str) -> Path:
        assert self.folder is not None
        return self.folder / day

    def _write(self, day: str) -> None:
        """Not forced onto the disk: the run's ledger is, and a restarted gateway counts from there."""
        folder = self._of(day)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = folder / f".{self.run_id}.partial"
        partial.write_text(json.dumps({"usd": round(self._own[day], 9)}), encoding="utf-8")
        put_in_place(partial, folder / f"{self.run_id}.json")


def _read(path: Path) -> float:
    try:
        return float(json.loads(path.read_text(encoding="utf-8"))["usd"])
    except FileNotFoundError:
        return 0.0
    except (ValueError, LookupError, TypeError) as error:
        raise OSError(f"{path} cannot be read: {error}") from error  # unknown spending is not zero
