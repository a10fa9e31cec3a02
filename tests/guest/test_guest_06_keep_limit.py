"""HOST: the listed limit of append-only notes. It loses them: the session that went on with them is over."""

import json

import guest_lab

pytestmark = guest_lab.only_in_soak("it loses the notes")


def test_root_can_take_the_attribute_away_and_the_snapshot_answers_that(lab, collected):
    command = "python3 - /sandbox worker /opt/lab-harness limits"
    tried = json.loads(lab.ssh(command, code=None, stdin=guest_lab.SCRIPTS / "destroyers.py", seconds=1100))
    assert tried["limits"] and all(result["lost"] for result in tried["limits"])
