"""HOST: after a session its workspace is attacked, by the Worker and by root; no note, no script is lost."""

import json

import guest_lab
import pytest

# Without a soak: one of each kind.
FEW = (
    "rm", "rm of a folder", "unlink", "shred and remove", "python os.remove", "python open for writing",
    "mv over", "mv of the folder", "cp over", "redirection", "truncate", "sed -i", "git clean",
    "rsync --delete", "find -delete", "tar over", "dd", "mkfs on a loop", "tools and all",
)  # fmt: skip


@pytest.fixture(scope="module")
def attacked(lab, collected):
    """What tests/guest/scripts/destroyers.py found, attack by attack."""
    command = f"python3 - /sandbox worker /opt/lab-harness '{'all' if guest_lab.SOAK else ','.join(FEW)}'"
    return json.loads(lab.ssh(command, code=None, stdin=guest_lab.SCRIPTS / "destroyers.py", seconds=1100))


def test_none_of_the_ways_to_destroy_loses_a_note_or_a_script(attacked):
    lost = {
        f"{result['what']} as {result['as']}": result["lost"]
        for result in attacked["results"]
        if result["lost"]
    }
    assert not lost
    assert attacked["attempts"] >= (140 if guest_lab.SOAK else 2 * len(FEW))


def test_everything_else_of_the_last_generation_comes_back_byte_exact(attacked):
    assert [result["what"] for result in attacked["results"] if not result["exact"]] == []
    assert any(result["restored"] for result in attacked["results"]), "the attacks on tools/ did something"
