"""TESTS: the gateway and the analysis also run on Windows and macOS: no import that binds them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("labkit/gateway", "labkit/analysis")
POSIX_ONLY = {
    "fcntl",
    "pwd",
    "grp",
    "termios",
    "tty",
    "pty",
    "resource",
    "syslog",
    "crypt",
    "spwd",
    "nis",
    "posix",
}
LAB_ONLY = {"libvirt", "paramiko", "ansible", "ansible_runner", "pycdlib", "harness"}
POSIX_CALLS = {
    "fork",
    "forkpty",
    "setsid",
    "setuid",
    "getuid",
    "geteuid",
    "killpg",
    "getpgid",
    "mkfifo",
    "chown",
}

FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def names_imported(tree: ast.AST) -> set[str]:
    """Top-level module names, also those imported inside functions."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add((node.module or "").partition(".")[0])
    return found


def calls_of_os(tree: ast.AST) -> set[str]:
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return {a.attr for a in attributes if isinstance(a.value, ast.Name) and a.value.id == "os"}


def test_there_is_something_to_check():
    assert {path.relative_to(ROOT).parts[1] for path in FILES} == {"gateway", "analysis"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_that_must_run_everywhere_imports_nothing_that_does_not(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not names_imported(tree) & (POSIX_ONLY | LAB_ONLY)
    assert not calls_of_os(tree) & POSIX_CALLS


def test_the_live_view_imports_its_terminal_modules_only_when_it_needs_them():
    tree = ast.parse((ROOT / "labkit/watch.py").read_text(encoding="utf-8"))
    at_the_top = ast.Module(
        [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))], []
    )
    assert not names_imported(at_the_top) & POSIX_ONLY
