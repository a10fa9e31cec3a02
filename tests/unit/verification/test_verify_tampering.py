"""TESTS: what was done to a collected run, and what `lab verify` says of it."""

from __future__ import annotations


def test_an_honest_run_holds(honest):
    from labkit.verification.verify import examine, text

    report = examine(honest)
    assert report.holds, text(report)
    assert report.checked["tool calls"] > 5 and report.checked["results shown again"] > 5
