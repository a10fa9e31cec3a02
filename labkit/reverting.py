"""HOST: `lab revert`: refuse what would lose a run, go back, write the receipt, switch the guest off."""

from __future__ import annotations

from labkit import drift, network_gate, session, snapshot
from labkit.config import Lab
from labkit.receipt import Receipt


def revert(lab: Lab, discard: bool = False) -> Receipt:
    """Back to the verified snapshot; the guest is off afterwards, also when the receipt does not hold.

    Raises LabError: no verified snapshot, an uncollected run, a guest or network that somebody changed, or
    (exit code 6) a check that does not hold.
    """
    where = session.place(lab)
    snapshot.require_verified(where)
    session.refuse_uncollected(lab, discard)
    drift.refuse(where)
    session.stop_gateways(lab)
    network_gate.at_next_start(lab, network_gate.OPEN)
    try:
        receipt = snapshot.revert(where)
    finally:
        snapshot.switch_off(where)
    receipt.demand()
    return receipt
