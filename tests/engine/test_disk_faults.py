"""ENGINE: no room and I/O errors wherever the harness writes: a session goes on, or ends to be taken up.

Once is a single failed call; from there on a file system that takes nothing more until the next start; a disk
that runs full takes a part of the write at which it does so.
"""

import errno

import pytest
from struck import SOAK, STEPS, Left, Session
from whole import faults

FAULTS = {
    "no room once": ("fail once", errno.ENOSPC),
    "a disk that runs full": ("fill", errno.ENOSPC),
    "an I/O error once": ("fail once", errno.EIO),
    "I/O errors from there on": ("fail on", errno.EIO),
}
MOST_TRACEBACKS = 5  # as many as steps may fail in a row (harness/failed_steps.py)
RECORD = "/telemetry/"
REPORTS = ("# Report\n", "# Report\n\nWith tools off.")  # as the Worker writes it, and without tools
ELSEWHERE = ("/mirror/", "/workspace/", "/sandbox/tmp")  # none of them ends a session


def sites(last):
    """Of so many writes."""
    if SOAK:
        return range(1, last + 1)
    return [1, 2, 5, 20, *range(100, last, last // 7), *range(last - 44, last + 1, 11)]


def half_written(workspace):
    """Of what the harness wrote there for the Worker. Empty files there may be: nothing is taken away."""
    for path in [*workspace.glob("*/n_*"), *workspace.glob("notes/final_report*")]:
        name, begin = path.stem.removeprefix("n_"), "echo " if path.suffix == ".sh" else "# "
        whole = [f"{begin}{name}\n"] if path.name.startswith("n_") else REPORTS
        text = path.read_text()
        if text and text not in whole:
            yield f"{path.name} is {text!r}"


def strike_and_go_on(host, gateway, strike):
    """Whether the fault was met; what is wrong after it and after a start on a disk in order, in words."""
    with Session(gateway) as session:
        struck = host.run(session, strike)
        left, talk = Left(session), session.talk()
        wrong = [] if struck["status"] in (0, 1 << 8) else [f"exit {struck['status']}: {talk[-1500:]}"]
        reasons = [str(row[10]) for row in left.rows["execution_logs"]]
        tracebacks = talk.count("Traceback") + sum("Traceback" in reason for reason in reasons)
        wrong += [f"{tracebacks} tracebacks"] if tracebacks > MOST_TRACEBACKS else []
        wrong += half_written(session.sandbox / "workspace")
        if strike["below"] in ELSEWHERE and not talk.startswith("harness: the folder "):
            wrong += [] if session.summary()["steps"] >= STEPS else ["the fault ended the session"]
        if host.run(session)["status"] != 0:
            return True, [*wrong, f"the next start failed: {session.talk()[-1500:]}"]
        later = [what for what in faults(session, left) if not what.startswith(("a traceback", "mirror:"))]
        return struck["seen"] >= strike["at"], wrong + later


@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("place", [RECORD, *ELSEWHERE])
def test_a_session_that_cannot_write_goes_on_or_ends_and_loses_nothing(host, gateway, place, fault):
    points = sites(host.writes(gateway, place))
    action, error = FAULTS[fault]
    common = {"below": place, "action": action, "error": error}
    found = {at: strike_and_go_on(host, gateway, common | {"at": at}) for at in points}
    assert {at: what for at, (_, what) in found.items() if what} == {}
    met = sum(is_met for is_met, _ in found.values())
    assert met >= 0.9 * len(found), "two sessions make about as many writes, and the last ones may be missed"


def test_a_record_that_cannot_be_opened_is_one_sentence_and_no_traceback(host, gateway):
    with Session(gateway) as session:
        strike = {"below": RECORD, "at": 1, "action": "fail on", "error": errno.ENOSPC}
        assert host.run(session, strike)["status"] == 1 << 8
        assert session.talk().startswith("harness: the ")
        assert "Traceback" not in session.talk()
