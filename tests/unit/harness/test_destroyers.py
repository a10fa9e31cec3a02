"""UNIT: the destroyers that run in the guest, here on an ext4 file of this machine, as nobody and as root."""

import json
import pwd
import subprocess
import sys
from pathlib import Path

import pytest
from small_disks import small_disk

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "tests/guest/scripts/destroyers.py"


@pytest.fixture(scope="module")
def outcome():
    """What the script prints after all attempts."""
    with small_disk("ext4", 64) as disk:
        sandbox = disk.folder / "sandbox"
        for name in ("notes", "scripts", "tools"):
            (sandbox / "workspace" / name).mkdir(parents=True)
        (sandbox / "tmp").mkdir(mode=0o1777)
        user = pwd.getpwnam("nobody")
        subprocess.run(
            ["chown", "-R", f"{user.pw_uid}:{user.pw_gid}", str(sandbox / "workspace")], check=True
        )
        words = [sys.executable, str(SCRIPT), str(sandbox), "nobody", str(ROOT)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
        assert done.returncode in (0, 1), done.stderr
        yield json.loads(done.stdout)


def test_nothing_in_notes_and_scripts_is_lost_whatever_is_tried(outcome):
    assert [result for result in outcome["results"] if result["lost"]] == []
    assert outcome["attempts"] >= 2 * 30


def test_everything_else_comes_back_byte_exact_from_the_generation_before(outcome):
    assert [result for result in outcome["results"] if not result["exact"]] == []
    assert sum(result["restored"] > 0 for result in outcome["results"]) >= 3


def test_root_can_take_the_attribute_off_and_the_list_of_limits_says_so(outcome):
    (limit,) = outcome["limits"]
    assert limit["what"].startswith("chattr -a") and limit["lost"]
