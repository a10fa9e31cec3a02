"""UNIT: FINAL_REPORT's shell leaves the sandbox as it was, byte for byte: by rules, and by mounts alone."""

import hashlib
import os
import shlex
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from harness_run import run_settings
from scripted_gateway import TOKEN
from test_shell_rules import ESCAPES, HONEST

from harness import tools
from harness.__main__ import _make_folders
from harness.clock import Clock
from harness.phases import FINAL
from harness.settings import from_dict
from harness.telemetry.recorder import Recorder
from harness.tools import process, read_only_mounts
from harness.tools.base import Desk


def why_no_mounts():
    """Empty where a mount namespace can be made."""
    if os.geteuid() != 0:
        return "only root can make a mount namespace"
    if shutil.which("unshare") is None:
        return "no unshare: apt-get install util-linux"
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True)
    return f"no mount namespace can be made here: {tried.stderr}" if tried.returncode else ""


held_by_mounts = pytest.mark.skipif(bool(why_no_mounts()), reason=why_no_mounts())
WRITES = [
    "touch y",
    "echo z > x.md",
    "echo z >> x.md",
    "mkdir d",
    "find . -name x.md -delete",
    "find . -name x.md -exec touch y \\;",
    "find . -fprintf y %p",
    "find . -fls y",
    "sort -o x.md x.md",
    "uniq x.md y",
    "sed -i s/a/b/ x.md",
    "sed -n 'w y' x.md",
    "awk 'BEGIN{print 1 > \"y\"}'",
    "echo a | tee y",
    "echo y | xargs touch",
    "tar -cf y.tar x.md",
    "cp x.md y",
    "mv x.md y",
    "ln x.md y",
    "ln -s x.md y",
    "chmod 777 x.md",
    "touch -d 2001-01-01 x.md",
    "truncate -s0 x.md",
    "dd if=/dev/zero of=x.md count=1 2>&1",
    'python3 -c \'open("x.md", "w")\'',
    "mount -o remount,rw / ; touch y",
    "mount -t tmpfs none . && umount . ; touch y",
    "unshare -m sh -c 'mount -o remount,rw,bind /; touch y'",
    "sudo -n touch y",
    "(setsid touch y &) ; sleep 0.1",
    "touch ../tmp/y",
    "rm x.md",
    "tree -o y",
    "tree -ao y",
    "tree -R -L 1 -H . ",
    "tree -Lo 1 y",
]
# These reach for more than files (the host's clock and its name), or wait for ever.
NOT_RUN = (
    "date -s 2030-01-01",
    "hostname y",
    "tail -f x.md",
    "tail --follow x.md",
    "tail +1f x.md",
    "tail +f x.md",
)


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    wanted = from_dict(run_settings(tmp_path_factory.mktemp("reading"), command_timeout_seconds=5))
    _make_folders(wanted)
    workspace = wanted.paths.workspace
    (workspace / "x.md").write_text("b 2\na 1\ntwo words\n")
    (workspace / "odd name; rm -rf.md").write_text("odd\n")
    (workspace / "d1").mkdir()
    (workspace / "evil").write_text("#!/bin/sh\ntouch y\n")
    (workspace / "evil").chmod(0o755)
    clock = Clock(3600, 0.1)
    recorder = Recorder(wanted.paths.primary_db, wanted.paths.mirror_db, TOKEN, clock.elapsed)
    return Desk(wanted, recorder, clock, None, threading.Event(), FINAL)


def tree(desk):
    """Every name in the sandbox with its mode, time of change and content; outputs and record left out."""
    found = {}
    ours = (
        desk.settings.paths.shown_outputs,
        desk.settings.paths.telemetry,
        desk.settings.paths.mirror_db.parent,
    )
    for folder, folders, files in os.walk(desk.settings.paths.sandbox):
        folders[:] = [name for name in folders if os.path.join(folder, name) not in map(str, ours)]
        for name in files + folders:
            path = os.path.join(folder, name)
            info = os.lstat(path)
            content = hashlib.sha256(Path(path).read_bytes()).hexdigest() if os.path.isfile(path) else ""
            found[path] = (info.st_mode, info.st_mtime_ns, info.st_nlink, content)
    return found


def run(desk, line):
    desk.step += 1
    return tools.use("execute_shell", {"command": line}, desk).text


@pytest.mark.parametrize("line", ESCAPES)
def test_an_escape_leaves_the_tree_as_it_was(desk, line):
    before = tree(desk)
    assert "Not run" in run(desk, line)
    assert tree(desk) == before


@pytest.mark.parametrize("line", HONEST)
def test_honest_reading_works_in_the_final_phase_and_changes_nothing(desk, line):
    before = tree(desk)
    assert "exit code 0]" in run(desk, line)
    assert tree(desk) == before


@held_by_mounts
@pytest.mark.parametrize("line", WRITES)
def test_what_passed_the_rules_by_mistake_would_still_write_nowhere(desk, line):
    before = tree(desk)
    desk.step += 1
    process.run_command(line, desk, shown=True, read_only=True)
    assert tree(desk) == before


@held_by_mounts
@pytest.mark.parametrize("line", [line for line in ESCAPES if line not in NOT_RUN])
def test_an_escape_that_the_rules_had_let_through_would_write_nowhere(desk, line):
    before = tree(desk)
    desk.step += 1
    process.run_command(line, desk, shown=True, read_only=True)
    assert tree(desk) == before


@pytest.mark.skipif(shutil.which("tree") is None, reason="needs the package tree")
@pytest.mark.parametrize("line", [line for line in WRITES if line.startswith("tree ")])
def test_what_tree_is_refused_for_it_does_where_nothing_holds_it(tmp_path, line):
    """Else the tests above would show nothing."""
    (tmp_path / "d").mkdir()
    (tmp_path / "x.md").write_text("a")
    subprocess.run(shlex.split(line), cwd=tmp_path, capture_output=True, timeout=20, check=False)
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 2


@held_by_mounts
def test_the_harness_and_later_commands_can_write_as_before(desk):
    process.run_command("touch y", desk, shown=True, read_only=True)
    desk.settings.paths.notes.joinpath("after.md").write_text("x")
    assert "exit code 0" in process.run_command("touch y2", desk, shown=True).told()
    assert (desk.settings.paths.workspace / "y2").exists()


def test_where_the_kernel_refuses_a_namespace_reading_goes_on_and_the_record_says_so(desk, monkeypatch):
    why = "no mount namespace: Operation not permitted"

    def refused(_places):
        raise read_only_mounts.NotReadOnly(why)

    monkeypatch.setattr(read_only_mounts, "_enter", refused)
    assert "two words" in run(desk, "cat x.md")
    run(desk, "cat x.md")
    said = desk.recorder.query("SELECT guard_reason FROM execution_logs WHERE event_type = 'GUARD'")
    assert [reason for (reason,) in said if "no read-only mounts" in reason] == [
        f"the reading shell has its rules only, no read-only mounts: {why}"
    ]
