"""TESTS: the notebook runs from its own folder on a collected run, and is committed without outputs."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from labkit.analysis import charts, questions

NOTEBOOKS = Path(__file__).parents[3] / "notebooks"


@pytest.fixture(scope="module")
def notebook():
    return nbformat.read(NOTEBOOKS / "run.ipynb", as_version=4)


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_it_is_committed_without_outputs(notebook):
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code(notebook))


def test_each_of_the_seven_questions_is_one_call(notebook):
    calls = [cell.source for cell in code(notebook) if cell.source.startswith("charts.")]
    assert calls == [f"charts.{name}(run);" for name in questions.SEVEN]


@pytest.mark.timeout(110)
def test_it_runs_on_a_collected_run_and_draws_seven_plots(notebook, built, monkeypatch):
    folder, _ = built
    monkeypatch.setenv("LAB_RUNS", str(folder.parent))
    monkeypatch.setenv("LAB_RUN", folder.name[:12])
    done = notebook.copy()
    NotebookClient(done, timeout=100, resources={"metadata": {"path": str(NOTEBOOKS)}}).execute()
    outputs = [output for cell in code(done) for output in cell.outputs]
    plots = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(plots) == 7
    assert all(output.output_type in ("display_data", "execute_result") for output in outputs)
    assert folder.name in outputs[0]["data"]["text/plain"]


@pytest.fixture
def pyplot():
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


def test_the_bars_are_the_counts_of_the_run(pyplot, run_dir, counts):
    axes = charts.tool_calls(run_dir)
    heights = {
        label.get_text(): bar.get_width()
        for label, bar in zip(axes.get_yticklabels(), axes.patches, strict=True)
    }
    assert heights == dict(counts.tools)


def test_the_stacked_bars_hold_every_event(pyplot, run_dir, counts):
    axes = charts.activity_over_time(run_dir)
    assert sum(bar.get_height() for bar in axes.patches) == sum(counts.events.values())


@pytest.mark.parametrize("name", questions.SEVEN)
def test_an_empty_run_and_names_that_are_no_formula_are_drawn(pyplot, tmp_path, name):
    import sqlite3

    import synthetic_run

    connection = sqlite3.connect(tmp_path / "run.db")
    connection.executescript(synthetic_run.SCHEMA.read_text())
    getattr(charts, name)(tmp_path).figure.canvas.draw()
    connection.execute(
        "INSERT INTO execution_logs (elapsed_seconds, phase, event_type, tool_name, guard_status, cost_usd) "
        "VALUES (1, '$\\frac{', 'TOOL_CALL', '$x_$^', '$', 1)"
    )
    connection.execute("INSERT INTO file_registry (file_path) VALUES ('a')")
    connection.commit()
    connection.close()
    axes = getattr(charts, name)(tmp_path)
    axes.figure.canvas.draw()
    assert axes.get_title(loc="left").endswith("?")
