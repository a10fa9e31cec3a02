"""UNIT: the four phases."""

import pytest
from test_tools import make_desk

from harness.phases import FINAL, PHASES, phase_at
from harness.prompting import FOLDER
from harness.tools import TOOLS, schemas, use


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.name)
def test_every_phase_owns_a_tool_that_can_write_its_deliverable(phase):
    assert phase.written_with in phase.tools
    folder = {"write_scratchpad": "notes/", "write_script": "scripts/"}[phase.written_with]
    assert phase.deliverable.startswith(folder)


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.name)
def test_every_phases_own_tool_really_writes_its_deliverable(phase, tmp_path):
    desk = make_desk(tmp_path)
    desk.phase = phase
    path = phase.deliverable.replace("*.md", "finding.md").replace("*", "probe.py").replace("vN", "v2")
    told = use(phase.written_with, {"filename": path.split("/")[1], "content": "x\n"}, desk).text
    assert told.startswith(f"Written: {path}")
    assert (desk.settings.paths.workspace / path).read_text() == "x\n"
    kind = {"SYNTHESIS": ("MASTER_SUMMARY", 2), "DEVELOPMENT": ("SCRIPT", 1)}.get(
        phase.name, ("SCRATCHPAD", 1)
    )
    assert desk.recorder.query("SELECT file_path, file_type, version FROM file_registry") == [(path, *kind)]


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.name)
def test_every_phase_offers_only_tools_that_exist_and_has_its_nudge(phase):
    assert [offer["function"]["name"] for offer in schemas(phase.tools)] == list(phase.tools)
    assert (FOLDER / "nudges" / f"{phase.name.lower()}.md").is_file()


def test_the_boundaries_are_fractions_right_for_any_length():
    at = [0, 0.1999, 0.2, 0.5332, 0.5333, 0.7499, 0.75, 1.0, 7.0]
    names = [phase_at(fraction).name for fraction in at]
    assert names == ["EXPLORATION"] * 2 + ["DEVELOPMENT"] * 2 + ["SYNTHESIS"] * 2 + ["FINAL_REPORT"] * 3


def test_tools_appear_and_are_withdrawn_with_the_phase():
    by_name = {phase.name: set(phase.tools) for phase in PHASES}
    assert "write_script" not in by_name["EXPLORATION"]
    assert by_name["DEVELOPMENT"] == by_name["SYNTHESIS"] == set(TOOLS)
    assert by_name["FINAL_REPORT"] == {"execute_shell", "write_scratchpad", "read_file", "list_workspace"}
    assert FINAL.shell == "read_only"
