"""HOST: one plot per question. Owns colours and axes; the numbers come from the .sql files.

Each function takes a run's folder and returns a matplotlib Axes. matplotlib is imported when a
plot is asked for: the rest of the analysis works without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from labkit.analysis import load, questions, thin
from labkit.analysis.text import harmless

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PHASE_COLOURS = {
    "EXPLORATION": "#4c78a8",
    "DEVELOPMENT": "#54a24b",
    "SYNTHESIS": "#eeca3b",
    "FINAL_REPORT": "#e45756",
}
OTHER_COLOUR = "#9d9d9d"
GATE_COLOURS = {"ALLOW": "#54a24b", "BLOCK": "#e45756", "BYPASS": "#9d9d9d"}


def activity_over_time(run_dir: Path) -> Axes:
    """Events a bucket of minutes, stacked by phase."""
    rows = [row for row in load.query(run_dir, "activity_over_time").rows if row[0] is not None]
    axes = _axes("activity_over_time", "minute", "events")
    width = thin.bucket_minutes(rows[0][0], rows[-1][0], lines=48) if rows else 1
    stacked: dict[float, int] = {}
    for phase in dict.fromkeys(row[1] for row in rows):
        sums: dict[float, int] = {}
        for minute, _, events in (row for row in rows if row[1] == phase):
            start = minute // width * width
            sums[start] = sums.get(start, 0) + events
        bottom = [stacked.get(start, 0) for start in sums]
        axes.bar(
            list(sums),
            list(sums.values()),
            width * 0.9,
            bottom,
            align="edge",
            color=_colour(phase),
            label=_name(phase),
        )
        stacked.update({start: stacked.get(start, 0) + events for start, events in sums.items()})
    return _legend(axes)


def cumulative_cost(run_dir: Path) -> Axes:
    """Dollars spent up to each minute, in the colour of the phase."""
    rows = [row for row in load.query(run_dir, "cumulative_cost").rows if row[0] is not None]
    axes = _axes("cumulative_cost", "minute", "dollars")
    axes.plot([row[0] for row in rows], [row[2] for row in rows], color="#cccccc", zorder=1)
    for phase in dict.fromkeys(row[1] for row in rows):
        points = [row for row in rows if row[1] == phase]
        axes.scatter(
            [p[0] for p in points], [p[2] for p in points], s=9, color=_colour(phase), label=_name(phase)
        )
    return _legend(axes)


def tokens_by_phase(run_dir: Path) -> Axes:
    """Prompt, cached and completion tokens side by side for each phase; cached is a part of prompt."""
    result = load.query(run_dir, "tokens_by_phase")
    axes = _axes("tokens_by_phase", "", "tokens")
    for offset, column in enumerate(("prompt", "cached", "completion")):
        heights = [row[result.columns.index(column)] for row in result.rows]
        axes.bar([i + (offset - 1) * 0.27 for i in range(len(heights))], heights, 0.27, label=column)
    axes.set_xticks(range(len(result.rows)), [_name(row[0]) for row in result.rows])
    return _legend(axes)


def inspector_gate(run_dir: Path) -> Axes:
    """How many gated events each verdict has."""
    return _counted(run_dir, "inspector_gate", GATE_COLOURS)


def tool_calls(run_dir: Path) -> Axes:
    """How often each tool was called."""
    return _counted(run_dir, "tool_calls")


def event_types(run_dir: Path) -> Axes:
    """How many rows each kind of event has."""
    return _counted(run_dir, "event_types")


def files_written(run_dir: Path) -> Axes:
    """How many files of each kind the Worker wrote."""
    return _counted(run_dir, "files_written")


def _counted(run_dir: Path, name: str, colours: dict[str, str] | None = None) -> Axes:
    """Horizontal bars of a (kind, count) answer, largest on top, each with its number."""
    rows = load.query(run_dir, name).rows
    axes = _axes(name, "", "")
    kinds = [_name(row[0]) for row in rows]
    bars = axes.barh(
        range(len(rows)),
        [row[1] for row in rows],
        color=[(colours or {}).get(k, PHASE_COLOURS["EXPLORATION"]) for k in kinds],
    )
    axes.bar_label(bars, padding=3)
    axes.set_yticks(range(len(rows)), kinds)
    axes.invert_yaxis()
    return axes


def _axes(name: str, x: str, y: str) -> Axes:
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(figsize=(9, 3.2), layout="constrained")
    axes.set_title(questions.load(name).sentence, loc="left")
    axes.set(xlabel=x, ylabel=y)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _legend(axes: Axes) -> Axes:
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return axes


def _colour(phase: str | None) -> str:
    return PHASE_COLOURS.get(phase or "", OTHER_COLOUR)


def _name(value: object) -> str:
    """A label. `$` would start a formula: matplotlib fails on a malformed one."""
    return "(none)" if value is None else harmless(str(value))[:40].replace("$", r"\$")
