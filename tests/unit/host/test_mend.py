"""TESTS: what the watchdog may do about a session: not while somebody is at work, not to another run."""

from __future__ import annotations

import subprocess

from labkit import lock, mend, plan, state
from labkit.gateway import commands, watchdog
from labkit.gateway.files import JsonLines
from labkit.gateway.helpers import BUSY
from labkit.status import _run

RUN = "20261129-201202-b0dd88"


def ask(lab, what: str, capsys, run: str = RUN) -> tuple[int, str]:
    code = mend.main([str(lab.inventory), str(lab.dir / "runs"), run, what])
    return code, capsys.readouterr().out


def test_a_repair_keeps_out_of_the_way_of_a_command_at_work(lab, capsys):
    state.update(lab.dir, run=RUN, collected=False)
    with lock.hold(lab.state_dir, lab.name, "collect"):
        code, said = ask(lab, "repair", capsys)
    assert code == BUSY and "another command is at work" in said


def test_a_run_that_was_collected_or_is_another_one_is_left_alone(lab, capsys):
    state.update(lab.dir, run=RUN, collected=True)
    for what in ("repair", "seal"):
        code, said = ask(lab, what, capsys)
        assert code not in (0, BUSY) and "no longer in the guest" in said
    state.update(lab.dir, run="another", collected=False)
    assert "no longer in the guest" in ask(lab, "repair", capsys)[1]


def test_the_helpers_start_from_any_folder_and_say_their_usage_when_misused(lab, tmp_path):
    helpers = plan.helpers(lab, RUN)
    for line in (helpers.guest, helpers.repair, helpers.seal):
        done = subprocess.run([*line, "x"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2 and done.stderr.startswith("usage: INVENTORY"), done.stderr
    assert not {"KEY", "TOKEN"} & set(" ".join(helpers.repair).upper().split())


def test_status_tells_an_open_trouble_what_was_asked_and_how_long_the_run_is_now(tmp_path):
    folder = tmp_path / RUN
    folder.mkdir()
    (folder / "run.json").write_text('{"minutes": 60, "budget_usd": 5}')
    commands.append(folder, "extend", {"minutes": 30, "budget_usd": 1}, who={"user": "ada"}, why="slow")
    lines = JsonLines(folder / watchdog.FILE_NAME)
    lines.append([{"what": "trouble", "text": "nothing was heard of the session for 0:45"}])
    known = _run(folder, [])
    assert (known["minutes"], known["budget_usd"]) == (90, 6)
    assert known["watchdog"] == "trouble: nothing was heard of the session for 0:45"
    assert [(item["name"], item["state"], item["why"]) for item in known["commands"]] == [
        ("extend", "queued", "slow")
    ]
    lines.append([{"what": "heard again", "text": "x"}])
    lines.close()
    assert _run(folder, [])["watchdog"] == ""
