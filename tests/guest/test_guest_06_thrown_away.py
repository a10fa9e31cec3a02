"""HOST: `--keep --discard` over a session that runs: the old one ends, and the new one is a session.

That one is stopped by `lab collect --stop`, as `lab stop` would: the record has who asked.
"""

import time

import guest_lab

pytestmark = guest_lab.only_in_soak("three minutes")


def started(lab, *words: str) -> str:
    """The run_id of a session that has done a step."""
    begin = ("run", *words, "--model", "rehearsal", "--minutes", "4", "--discard", "--detach", "--json")
    run_id = lab.lab(*begin).json["run"]
    deadline = time.monotonic() + 180
    while (known := lab.lab("status", "--json").json)["step"] < 1:
        assert time.monotonic() < deadline, "the session did not get to its first step"
        time.sleep(3)
    assert known["run"] == run_id
    return run_id


def test_a_session_that_is_thrown_away_makes_room_for_the_next_one_in_the_same_guest(lab, built):
    first = started(lab)
    second = started(lab, "--keep")
    assert first != second
    assert lab.lab("collect", "--stop", "--json").json["folder"].endswith(second)
    lab.lab("verify", second)
    asked = "SELECT command_or_input FROM execution_logs WHERE event_type = 'COMMAND'"
    assert "lab collect --stop" in lab.lab("query", asked, "--run", second, "--json").out
