"""UNIT: `lab simulate` as a person types it."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from small_disks import small_disk
from typer.testing import CliRunner

from labkit import cli
from labkit.analysis import load
from labkit.config import SHIPPED_INVENTORY
from labkit.errors import LabError
from labkit.simulation import simulate

PROMISED = {"steps", "stop_reason", "final_report_written", "cost_usd", "simulated_seconds", "wall_seconds"}
PROMISED |= {"seed", "phases", "faults"}


def typed(*words):
    """Standard output of `lab simulate WORDS`; what it raises is raised."""
    result = CliRunner().invoke(cli.app, ["simulate", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_json_has_what_is_promised_and_the_seed_decides_it():
    first, again = (json.loads(typed("--hours", "0.1", "--seed", "4", "--json")) for _ in range(2))
    assert set(first) >= PROMISED
    del first["wall_seconds"], again["wall_seconds"]
    assert first == again


def test_a_person_is_told_how_it_ended_and_what_it_cost():
    said = typed("--hours", "0.1", "--provider", "talker")
    assert "time limit reached" in said
    assert "$" in said


def test_prompt_task_budget_and_inventory_take_effect(tmp_path):
    inventory = tmp_path / "inventory"
    shutil.copytree(SHIPPED_INVENTORY, inventory)
    run_yml = inventory / "group_vars/all/run.yml"
    shipped = run_yml.read_text()
    run_yml.write_text(shipped.replace("run_window_max_steps: 18", "run_window_max_steps: 7"))
    assert run_yml.read_text() != shipped
    (tmp_path / "prompt.md").write_text("Short. {{task}} Window {{window_max}}.")
    (tmp_path / "task.md").write_text("Weigh a feather.")
    options = ["--prompt", str(tmp_path / "prompt.md"), "--task", str(tmp_path / "task.md")]
    options += ["--inventory", str(inventory), "--budget", "3", "--keep", str(tmp_path / "kept")]
    typed("--hours", "0.1", *options)
    kept = load.query(tmp_path / "kept", "SELECT content FROM prompts WHERE name = 'worker'")
    assert "Weigh a feather." in str(kept)
    assert "Window 7." in str(kept)
    started = load.query(tmp_path / "kept", "SELECT sanitized_output FROM execution_logs WHERE id = 1")
    assert '"budget_usd": 3' in str(started)


def test_a_kept_session_can_be_asked_and_replayed(tmp_path):
    kept = tmp_path / "kept"
    typed("--hours", "0.1", "--keep", str(kept))
    assert (kept / "workspace/notes").is_dir()
    summary = json.loads((kept / "summary.json").read_text())
    again = json.loads(typed("--replay", str(kept), "--json"))
    assert (again["steps"], again["stop_reason"]) == (summary["steps"], summary["stop_reason"])
    with pytest.raises(LabError, match="exists"):
        typed("--keep", str(kept))


def test_what_is_to_be_typed_next_can_be_typed_whatever_the_folder_is_called(tmp_path):
    kept = tmp_path / "a #1 try"
    assert f"lab query QUESTION --run '{kept}'" in typed("--hours", "0.05", "--keep", str(kept))


def test_the_shipped_scripts_are_listed():
    listed = json.loads(typed("--provider", "list", "--json"))
    assert {"honest", "flaky", "outage", "looper", "miser"} <= set(listed)


def test_a_wrong_word_is_refused_before_anything_is_made(tmp_path):
    with pytest.raises(LabError, match="honest"):
        typed("--provider", "nobody", "--keep", str(tmp_path / "kept"))
    assert not (tmp_path / "kept").exists()


def test_on_a_disk_that_is_too_small_nothing_half_is_kept():
    with small_disk("tmpfs", 1) as disk:
        with pytest.raises(OSError, match="space"):
            typed("--hours", "1", "--keep", str(disk.folder / "kept"))
        assert list(disk.folder.iterdir()) == []
        with pytest.raises(LabError, match="simulated session"):
            simulate("honest", minutes=60, folder=disk.folder / "sandbox")


def test_a_scripts_settings_hold_unless_something_else_was_typed(tmp_path):
    (tmp_path / "tight.yml").write_text(
        "settings: {budget_usd: 0.01, window_max_steps: 5, window_min_steps: 2}\n"
    )
    tight = ["--hours", "0.2", "--provider", str(tmp_path / "tight.yml"), "--json"]
    poor, rich = json.loads(typed(*tight)), json.loads(typed(*tight, "--budget", "5"))
    assert (poor["stop_reason"], rich["stop_reason"]) == ("budget exhausted", "report delivered")
    assert rich["digest_refreshes"] > 2


@pytest.mark.parametrize("hours", ["0", "49", "nan"])
def test_a_length_that_no_run_may_have_is_refused(hours):
    with pytest.raises(LabError, match="--hours"):
        typed("--hours", hours)


def ended_by(name, *options):
    """The finished process of `lab simulate` that the signal of that name reached in the middle of a step."""
    command = [sys.executable, "-m", "labkit.cli", "simulate", "--hours", "8", *options]
    # In the middle of a step, where asyncio has a task of its own: the loop's clock is asked there.
    program = (
        "import os, signal, sys\n"
        "from labkit.simulation import sandbox, virtual\n"
        "from labkit import cli\n"
        "asked, real = [], virtual.VirtualLoop.time\n"
        "def time(self):\n"
        "    asked.append(1)\n"
        "    if len(asked) == 200:\n"
        "        own = f'{sandbox.PREFIX}{os.getpid()}-*'\n"
        "        print(*{found for place in sandbox.places() for found in place.glob(own)})\n"
        "        sys.stdout.flush()\n"
        f"        signal.raise_signal(signal.{name})\n"
        "    return real(self)\n"
        "virtual.VirtualLoop.time = time\n"
        f"sys.argv = {command[2:]!r}\n"
        "cli.main()\n"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_ends_it_as_usual_and_leaves_no_folder(name, tmp_path):
    ended = ended_by(name, "--keep", str(tmp_path / "kept"))
    assert ended.returncode == -signal.Signals[name]
    folder = Path(ended.stdout.strip())
    assert folder.name.startswith("lab-simulate-") and not folder.exists()
    assert not (tmp_path / "kept").exists() and ended.stderr == ""


@pytest.mark.usefixtures("usual_signals")
def test_ctrl_c_ends_it_with_130_and_one_sentence():
    ended = ended_by("SIGINT")
    assert ended.returncode == 130 and not Path(ended.stdout.strip()).exists()
    assert ended.stderr == "lab: the simulation was interrupted\n     nothing of it is kept\n"


def prompt_of(folder):
    return load.query(folder, "SELECT content FROM prompts WHERE name = 'worker'").rows[0][0]


def test_a_replay_gives_the_worker_the_recorded_prompt_unless_another_is_named(tmp_path):
    (tmp_path / "mine.md").write_text("Short. {{task}} Window {{window_max}}.")
    (tmp_path / "task.md").write_text("Weigh a feather.")
    options = ["--prompt", str(tmp_path / "mine.md"), "--task", str(tmp_path / "task.md")]
    typed("--hours", "0.1", *options, "--keep", str(tmp_path / "first"))
    typed("--replay", f"{tmp_path}/first", "--keep", str(tmp_path / "again"))
    assert "Weigh a feather." in prompt_of(tmp_path / "first")
    assert prompt_of(tmp_path / "again") == prompt_of(tmp_path / "first")
    typed("--replay", f"{tmp_path}/first", *options[2:], "--keep", str(tmp_path / "other"))
    other = prompt_of(tmp_path / "other")
    assert "Weigh a feather." in other and not other.startswith("Short.")


def test_a_prompt_of_a_script_has_a_place_for_the_task_that_was_typed(tmp_path):
    (tmp_path / "own.yml").write_text("settings: {prompt: No place for it.}\n")
    (tmp_path / "task.md").write_text("Weigh a feather.")
    with pytest.raises(LabError, match="the prompt of provider script own has no {{task}}"):
        typed("--provider", str(tmp_path / "own.yml"), "--task", str(tmp_path / "task.md"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "can't read the provider script '': "),
        ("a: [1\n", "can't read the provider script .*odd.yml: line 2: "),
    ],
)
def test_a_script_that_cannot_be_read_is_named_and_why(tmp_path, content, says):
    path = tmp_path / "odd.yml"
    path.write_text(content or "")
    with pytest.raises(LabError, match=says) as refused:
        typed("--provider", "" if content is None else str(path))
    assert "Errno" not in str(refused.value) and "unicode string" not in str(refused.value)
