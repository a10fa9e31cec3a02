"""UNIT: what is in notes/ and scripts/ when a step ends stays, and ordinary work there goes on. Real ext4."""

import json
import os
import pwd
import subprocess
import time
from pathlib import Path

import pytest
from diligent import STEP_SECONDS
from harness_run import run_session, run_settings
from scripted_gateway import ScriptedGateway, call, say
from small_disks import small_disk
from test_resume import phase_of

from harness.inventory import Inventory
from harness.settings import from_dict
from harness.sweep import Sweep
from harness.telemetry.recorder import Recorder

USER = "nobody"


@pytest.fixture(scope="module")
def disk():
    with small_disk("ext4", 192) as disk:
        yield disk


@pytest.fixture
def box(disk, request):
    """A sandbox with a workspace of the Worker's on the disk."""
    return make_box(disk.folder / f"box-{abs(hash(request.node.name)) % 10**8}")


def make_box(sandbox):
    for name in ("notes", "scripts", "tools"):
        (sandbox / "workspace" / name).mkdir(parents=True)
    (sandbox / "tmp").mkdir()
    (sandbox / "tmp").chmod(0o1777)
    for folder in (sandbox, sandbox / "workspace"):
        folder.chmod(0o755)  # whatever the umask
    entry = pwd.getpwnam(USER)
    subprocess.run(["chown", "-R", f"{entry.pw_uid}:{entry.pw_gid}", str(sandbox / "workspace")], check=True)
    return sandbox / "workspace"


def worker(workspace, line):
    """Run a line as the Worker would; its exit code and talk."""
    environment = {"HOME": str(workspace / "tools"), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        ["/bin/bash", "-c", line], cwd=workspace, user=USER, group=pwd.getpwnam(USER).pw_gid, extra_groups=[],
        env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def is_append_only(path):
    return (
        "a" in subprocess.run(["lsattr", "-d", str(path)], capture_output=True, text=True).stdout.split()[0]
    )


def swept(workspace, sweep=None):
    sweep = sweep or Sweep(workspace, protects=True)
    return sweep, sweep.run(30)


def test_a_files_start_stays_after_the_step_and_its_end_can_grow(box):
    worker(box, "echo one >notes/a.md; mkdir -p scripts/deep/er; echo x >scripts/deep/er/b")
    _, found = swept(box)
    assert sorted(file.path for file in found.closed) == ["notes/a.md", "scripts/deep/er/b"]
    assert worker(box, "echo two >>notes/a.md")[0] == 0
    assert worker(box, "echo gone >notes/a.md")[0] != 0
    assert worker(box, "mv scripts/deep scripts/other")[0] != 0
    assert worker(box, "echo new >scripts/deep/er/c")[0] == 0
    assert (box / "notes/a.md").read_text() == "one\ntwo\n"


def test_a_script_made_by_the_shell_can_be_started_although_chmod_comes_too_late(box):
    worker(box, "printf '#!/bin/sh\\necho started\\n' >scripts/run.sh; echo text >scripts/data.txt")
    swept(box)
    assert worker(box, "scripts/run.sh") == (0, "started\n")
    assert worker(box, "chmod +x scripts/data.txt")[0] != 0


def test_git_commits_go_on_in_a_protected_repository(box):
    ident = "git config --global user.email a@b; git config --global user.name w"
    worker(box, f"{ident}; git init -q scripts/repo; cd scripts/repo; echo 1 >a; git add a; git commit -qm 1")
    sweep, _ = swept(box)
    code, talk = worker(
        box, "cd scripts/repo; echo 2 >b; git add b; git commit -qm 2 && git gc -q && git log"
    )
    assert code == 0, talk
    assert is_append_only(box / "scripts/repo/a")
    assert not is_append_only(box / "scripts/repo/.git/HEAD")
    swept(box, sweep)
    code, talk = worker(box, "cd scripts && git clone -q repo copy && cd copy && git checkout -q -b more")
    assert code == 0, talk


def test_a_virtual_environment_in_scripts_takes_packages_after_the_step(box):
    code, talk = worker(box, "/usr/bin/python3 -m venv --without-pip scripts/venv")
    assert code == 0, talk
    sweep, _ = swept(box)
    (package,) = Path(box / "scripts/venv/lib").iterdir()
    target = package / "site-packages"
    assert worker(box, f"echo 'x = 1' >{target}/m.py && scripts/venv/bin/python -c 'import m'")[0] == 0
    swept(box, sweep)
    assert (
        worker(
            box,
            f"echo 'x = 2' >{target}/m.py && rm -r {target}/__pycache__ && mv {target}/m.py {target}/n.py",
        )[0]
        == 0
    )


def test_python_keeps_its_bytecode_in_a_protected_folder(box):
    worker(box, "echo 'x = 1' >scripts/m.py; cd scripts && python3 -c 'import m'")
    sweep, _ = swept(box)
    assert (
        worker(box, "cd scripts && rm __pycache__/* && python3 -c 'import m' && ls __pycache__/m.*")[0] == 0
    )


def test_a_file_named_like_an_environments_does_not_exempt_notes(box):
    worker(box, "echo x >notes/pyvenv.cfg; echo y >notes/a.md")
    swept(box)
    assert is_append_only(box / "notes") and is_append_only(box / "notes/a.md")


def test_a_job_that_still_writes_is_left_alone_until_it_has_closed_its_file(box):
    line = "exec 3>notes/sub/log; echo begun >&3; touch notes/sub/ready; read -t 60 x; : >notes/sub/log"
    worker(box, "mkdir notes/sub")
    job = subprocess.Popen(
        ["/bin/bash", "-c", f"{line}; mv notes/sub/log notes/sub/final"],
        cwd=box,
        stdin=subprocess.PIPE,
        user=USER,
    )
    while not (box / "notes/sub/ready").exists():
        time.sleep(0.01)
    sweep, found = swept(box)
    assert found.written == ["notes/sub/log"]
    assert not is_append_only(box / "notes/sub") and is_append_only(box / "notes/sub/ready")
    job.communicate(b"\n", timeout=60)
    assert job.returncode == 0
    _, found = swept(box, sweep)
    assert [file.path for file in found.closed] == ["notes/sub/final"]
    assert is_append_only(box / "notes/sub/final") and is_append_only(box / "notes/sub")


def test_links_and_pipes_are_no_trap(box):
    worker(box, "ln -s /etc/passwd notes/link; mkfifo notes/pipe; ln -s /etc notes/folder")
    _, found = swept(box)
    assert found.closed == [] and not is_append_only("/etc/passwd")


def test_a_step_that_changed_nothing_reads_no_folder_again(box):
    worker(box, "for n in $(seq 300); do echo $n >notes/$n; done; mkdir notes/sub; echo x >notes/sub/y")
    sweep, _ = swept(box)
    time.sleep(0.06)
    swept(box, sweep)
    read = []
    real = sweep._read
    sweep._read = lambda path, *more: (read.append(path), real(path, *more))
    assert swept(box, sweep)[1].closed == [] and read == []
    worker(box, "echo z >notes/sub/z")
    assert [file.path for file in swept(box, sweep)[1].closed] == ["notes/sub/z"]
    assert read == ["notes/sub"]


def test_a_sweep_that_runs_out_of_time_goes_on_where_it_was(box):
    worker(box, "for n in $(seq 200); do echo $n >notes/$n; done")
    sweep = Sweep(box, protects=True)
    assert sweep.run(0).complete is False
    assert len(sweep.run(30).closed) == 200


def make_inventory(home, workspace, **changes):
    wanted = from_dict(run_settings(workspace.parent, **({"tool_user": USER} | changes)))
    return Inventory(wanted, Recorder(home / "a.db", home / "m" / "b.db", "", lambda: 1.0))


def events_of(inventory):
    sql = "SELECT guard_reason FROM execution_logs WHERE event_type = 'GUARD'"
    return [reason for (reason,) in inventory.recorder.query(sql)]


def test_a_file_system_without_the_attribute_is_said_once_and_losses_are_counted(tmp_path):
    with small_disk("ramfs", 1) as disk:
        workspace = make_box(disk.folder / "box")
        inventory = make_inventory(tmp_path, workspace)
        inventory.begin()
        for name in ("kept", "grown", "cut", "changed", "gone"):
            (workspace / "notes" / f"{name}.md").write_text("0123456789")
        inventory.recorder.step = 3
        inventory.after_step()
        (workspace / "notes/grown.md").open("a").write("more")
        (workspace / "notes/cut.md").write_text("0123")
        (workspace / "notes/changed.md").write_text("9876543210")
        (workspace / "notes/gone.md").unlink()
        inventory.recorder.step = 5
        inventory.after_step()
        assert inventory.at_the_end(hasty=False) == 3
    rows = inventory.recorder.query(
        "SELECT path, first_step, last_step, lost FROM workspace_files ORDER BY 1"
    )
    assert rows == [
        ("notes/changed.md", 3, None, "changed"),
        ("notes/cut.md", 3, None, "shortened"),
        ("notes/gone.md", 3, 4, "gone"),
        ("notes/grown.md", 3, 5, None),
        ("notes/kept.md", 3, 5, None),
    ]
    said = events_of(inventory)
    assert len([what for what in said if "has no append-only" in what]) == 1
    assert [what for what in said if "gone" in what] == ["1 files are gone: notes/gone.md"]


def test_a_file_under_a_new_name_after_it_was_half_written_is_no_loss(box, tmp_path):
    inventory = make_inventory(tmp_path, box)
    worker(box, "mkdir notes/sub")
    with open(box / "notes/sub/x.part", "w") as file:
        file.write("half")
        file.flush()
        inventory.after_step()
    os.rename(box / "notes/sub/x.part", box / "notes/sub/x")
    inventory.after_step()
    assert inventory.at_the_end(hasty=False) == 0
    paths = inventory.recorder.query("SELECT path FROM workspace_files WHERE size IS NOT NULL")
    assert paths == [("notes/sub/x",)]


def test_a_restarted_harness_knows_what_was_there_before(box, tmp_path):
    make = "echo one >notes/a.md; echo two >notes/b.md"
    worker(box, make)
    make_inventory(tmp_path, box).after_step()
    subprocess.run(["chattr", "-a", str(box / "notes"), str(box / "notes/b.md")], check=True)
    os.unlink(box / "notes/b.md")
    again = make_inventory(tmp_path, box)
    again.begin()
    assert again.at_the_end(hasty=True) == 1
    assert again.recorder.query("SELECT path FROM workspace_files WHERE lost = 'gone'") == [("notes/b.md",)]


def test_a_mount_over_notes_is_said(box, tmp_path):
    inventory = make_inventory(tmp_path, box)
    worker(box, "echo one >notes/a.md")
    inventory.after_step()
    subprocess.run(["mount", "-t", "tmpfs", "none", str(box / "notes")], check=True)
    try:
        inventory.after_step()
    finally:
        subprocess.run(["umount", str(box / "notes")], check=True)
    inventory.after_step()
    assert sum("notes/ was mounted over, moved or replaced" in said for said in events_of(inventory)) == 2
    assert inventory.at_the_end(hasty=False) == 0


def test_a_session_protects_what_its_tools_and_its_shell_wrote_and_counts_what_happened(disk):
    sandbox = disk.folder / "session"
    workspace = make_box(sandbox)
    (sandbox / "trash").mkdir()
    (sandbox / "trash").chmod(0o1777)
    plan = [
        call("write_scratchpad", filename="a.md", content="first"),
        call("execute_shell", command="echo shell >notes/c.md; echo 'print(1)' >scripts/b.py"),
        call("execute_shell", command="rm -f notes/a.md scripts/b.py; : >notes/c.md; mv notes x; echo tried"),
        call("execute_shell", command="cd ..; mkdir trash/rm-1-1; touch trash/rm-1-1/x trash/rm-1-1/y"),
        call("execute_shell", command="echo rm >>../tmp/.lab-refused"),
    ]

    def model(body):
        if phase_of(body) == "FINAL_REPORT":
            return call("write_scratchpad", filename="final_report_v1.md", content="# done")
        return plan.pop(0) if plan else say("waiting")

    with ScriptedGateway(worker=model) as gateway:
        settings = run_settings(sandbox, gateway.url, minutes=0.05, tool_user=USER)
        run = run_session(settings, step_seconds=STEP_SECONDS)
    assert "tried" in str(run.events("TOOL_RESULT"))
    assert (workspace / "notes/a.md").read_text() == "first"
    assert (workspace / "notes/c.md").read_text() == "shell\n"
    counted = {name: run.summary[name] for name in ("files_lost", "files_trashed", "files_refused")}
    assert counted == {"files_lost": 0, "files_trashed": 2, "files_refused": 1}
    paths = [row[0] for row in run.rows("SELECT path FROM workspace_files WHERE lost IS NULL ORDER BY 1")]
    assert paths == ["notes/a.md", "notes/c.md", "notes/final_report_v1.md", "scripts/b.py"]
    assert json.loads(run.events("RUN_SEALED")[0])["files_trashed"] == 2
