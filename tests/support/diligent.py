"""TESTS: a scripted Worker that does its work and reports, and sessions of some dozen steps for it."""

import re

from harness_run import run_session, run_settings
from scripted_gateway import call, say

REPORT = call("write_scratchpad", filename="final_report_v1.md", content="# Final\n\nAll done.")


def phase_of(body):
    return re.search(r"^Phase: (\w+)$", body["messages"][-1]["content"], re.M).group(1)


STEP_SECONDS = 0.1  # of the run's clock


def diligent(*work):
    """A Worker that does `work` in turn, and in the final phase writes its report and then says so."""
    count = [0, 0]

    def reply(body):
        final = phase_of(body) == "FINAL_REPORT"
        count[final] += 1
        if final:
            return REPORT if count[1] == 1 else say("The report stands.")
        return work[(count[0] - 1) % len(work)]

    return reply


def short(tmp_path, gateway, **changes):
    return run_session(
        run_settings(
            tmp_path / "sandbox",
            gateway.url,
            **({"minutes": 0.05, "report_reserve_fraction": 0.03} | changes),
        ),
        step_seconds=STEP_SECONDS,
    )
