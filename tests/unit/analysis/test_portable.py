"""TESTS: reading a run needs nothing that only Linux has, and no compiler."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
ABSENT = ["fcntl", "pwd", "grp", "resource", "termios", "pty", "libvirt", "paramiko", "ansible", "matplotlib"]


def test_analysis_and_runs_import_where_posix_modules_and_extras_are_missing():
    modules = [f"labkit.analysis.{path.stem}" for path in (ROOT / "labkit/analysis").glob("[a-z]*.py")]
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({ABSENT}))\n"
        f"import {', '.join([*modules, 'labkit.runs'])}\nprint('imported')"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "imported\n", done.stderr
