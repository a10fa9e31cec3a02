"""HOST: what ties telemetry to one start of one run: its nonce, and the guest's boots that the host saw.

The nonce is made anew for each start. A boot id is the guest kernel's own and tells less: guests resumed from
one snapshot have the same one until they boot. It tells of a machine that was set back or booted unseen.
"""

from __future__ import annotations

import json
import re

TOLD_BY = frozenset(("RUN_STARTED", "RESUMED"))  # the rows that name the boot
OTHER_BOOT = "another boot"  # why, in a ledger's record of telemetry that was not taken
_RESUMED = re.compile(r"; boot (\S{1,80})$")


def nonce_of(row: dict) -> str:
    """The run's nonce as RUN_STARTED tells it; empty where it tells none."""
    return _told(row, "nonce")


def boot_of(row: dict) -> str:
    """The boot that a RUN_STARTED or RESUMED row names; empty where it names none."""
    if row.get("event_type") == "RUN_STARTED":
        return _told(row, "boot_id")
    named = _RESUMED.search(str(row.get("sanitized_output") or ""))
    return named[1] if named else ""


class Boots:
    """The guest's boots in the order in which this host announced them; '' stands for one it did not know."""

    def __init__(self) -> None:
        self.announced: list[str] = []

    def announce(self, body: dict) -> None:
        """body: of a ledger record `opened` or `started`. Kits before this one wrote no boot_id there."""
        boot = str(body.get("boot_id") or "")
        if boot not in self.announced:
            self.announced.append(boot)

    @property
    def known(self) -> bool:
        """Whether a row can be held against them: not where one of them may be any."""
        return bool(self.announced) and "" not in self.announced

    def foreign(self, row: dict) -> bool:
        """Whether the row names a boot that none of them is."""
        return row.get("event_type") in TOLD_BY and self.known and boot_of(row) not in self.announced


class Origin:
    """What this host gave the run, and which rows are of something else."""

    def __init__(self, nonce: str, boot_id: str) -> None:
        self.facts = {"nonce": nonce, "boot_id": boot_id or None}  # as the ledger has them
        self.boots = Boots()

    def other(self, row: dict) -> dict[str, str]:
        """Of a row in TOLD_BY: why it is not of this start and machine, and what it tells; {} when it is."""
        nonce, boot = nonce_of(row), boot_of(row)
        if row["event_type"] == "RUN_STARTED" and self.facts["nonce"] not in ("", nonce):
            return {"why": "another start", "nonce": nonce[:80]}
        return {"why": OTHER_BOOT, "boot_id": boot[:80]} if self.boots.foreign(row) else {}


def _told(row: dict, name: str) -> str:
    try:
        return str(json.loads(row.get("sanitized_output") or "")[name])
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
