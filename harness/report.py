"""GUEST: the last rung: a factual report made from run.db when no model wrote one. Also the run's counts."""

from __future__ import annotations

from harness.clock import spoken
from harness.telemetry.recorder import Recorder
from harness.text import clean

SHOWN = 60  # entries of a list before it is cut


def counts(recorder: Recorder) -> dict:
    """Figures of the summary that come from the record. Dollars; None-cost calls are counted apart."""

    def one(sql: str, *values: object) -> int | float:
        return recorder.query(sql, *values)[0][0] or 0

    files = dict(recorder.query("SELECT file_type, COUNT(*) FROM file_registry GROUP BY file_type"))
    words = dict(recorder.query("SELECT event_type, COUNT(*) FROM execution_logs GROUP BY event_type"))
    blocked = (
        "SELECT COUNT(*) FROM execution_logs WHERE event_type='INSPECTOR_DECISION' AND guard_status='BLOCK'"
    )
    unknown = "SELECT COUNT(*) FROM api_requests WHERE cost_usd IS NULL"
    return {
        "steps": recorder.step,
        "api_requests": one("SELECT COUNT(*) FROM api_requests"),
        "digest_refreshes": words.get("DIGEST_REFRESH", 0),
        "nudges": words.get("SYSTEM_NUDGE", 0),
        "notes": files.get("SCRATCHPAD", 0),
        "scripts": files.get("SCRIPT", 0),
        "masters": files.get("MASTER_SUMMARY", 0),
        "inspector_reviews": words.get("INSPECTOR_DECISION", 0),
        "inspector_blocks": one(blocked),
        "prompt_tokens": one("SELECT SUM(prompt_tokens) FROM api_requests"),
        "completion_tokens": one("SELECT SUM(completion_tokens) FROM api_requests"),
        "cached_tokens": one("SELECT SUM(cached_tokens) FROM api_requests"),
        "cost_usd": round(one("SELECT SUM(cost_usd) FROM api_requests"), 6),
        "unknown_cost_requests": one(unknown),
        "events": one("SELECT COUNT(*) FROM execution_logs"),
    }


def factual(recorder: Recorder, run_id: str, why: str) -> str:
    """Markdown built from the record alone: nothing in it is a model's judgement."""
    figures = counts(recorder)
    parts = [
        f"# Final report of run {run_id}",
        f"The Worker delivered no report ({why}); the harness made this one from its record. "
        "It lists what happened and judges nothing.",
        "## Figures",
        "\n".join(f"- {name.replace('_', ' ')}: {value}" for name, value in figures.items()),
        "## Phases",
        _phases(recorder),
        "## Files",
        _list(recorder, "SELECT file_type || ' ' || file_path FROM file_registry ORDER BY id"),
        "## Guards, commands and faults",
        _list(
            recorder,
            "SELECT event_type || ': ' || COALESCE(guard_reason, sanitized_output, '') FROM execution_logs "
            "WHERE event_type IN ('GUARD','COMMAND','API_ERROR','MIRROR_DEGRADED',"
            "'MIRROR_HEALED') ORDER BY id DESC",
        ),
        "## The Worker's last thoughts, newest first",
        _list(
            recorder,
            "SELECT sanitized_output FROM execution_logs WHERE event_type='WORKER_THOUGHT' "
            "AND sanitized_output <> '' ORDER BY id DESC LIMIT 10",
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _phases(recorder: Recorder) -> str:
    rows = recorder.query(
        "SELECT phase, MIN(elapsed_seconds), MAX(elapsed_seconds), COUNT(DISTINCT step_number), COUNT(*) "
        "FROM execution_logs GROUP BY phase ORDER BY MIN(id)"
    )
    lines = [
        f"- {name}: {spoken(a)} to {spoken(b)}, {steps} steps, {n} events" for name, a, b, steps, n in rows
    ]
    return "\n".join(lines)


def _list(recorder: Recorder, sql: str) -> str:
    rows = [clean(str(row[0])).replace("\n", " ")[:300] for row in recorder.query(sql)]
    shown = [f"- {row}" for row in rows[:SHOWN]]
    if len(rows) > SHOWN:
        shown.append(f"- and {len(rows) - SHOWN} more, see run.db")
    return "\n".join(shown) or "- none"
