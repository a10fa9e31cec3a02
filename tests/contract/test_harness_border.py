"""CONTRACT: the harness stands alone in the guest: standard library, its two pinned packages, itself."""

import ast
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).parents[2] / "harness"
MODULES = sorted(path for path in HARNESS.rglob("*.py") if path.stat().st_size)
PACKAGES = {"openai", "markdownify", "harness"}


def imported(source: str) -> set[str]:
    """Top-level names of every import, also those inside functions."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where a name comes from"
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(HARNESS)))
def test_a_harness_module_imports_only_what_the_guest_has(module):
    foreign = imported(module.read_text()) - PACKAGES - set(sys.stdlib_module_names)
    assert not foreign


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(HARNESS)))
def test_a_harness_module_says_where_it_runs(module):
    assert ast.get_docstring(ast.parse(module.read_text())).startswith("GUEST: ")


def test_only_the_model_and_its_replies_know_the_openai_package():
    users = {path.name for path in MODULES if "openai" in imported(path.read_text())}
    assert users <= {"model.py", "replies.py"}


def test_the_border_would_notice_labkit():
    assert "labkit" in imported("def f():\n    from labkit.errors import LabError\n")
