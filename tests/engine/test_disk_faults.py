"""ENGINE: no room and I/O errors at each write of the record: a session goes on, or ends to be taken up.

`once` is a single failed call; `from there on` a file system that takes nothing more until the next start.
"""

import errno

import pytest
from struck import SOAK, STEPS, Left, Session
from whole import faults

ERRORS = {"no room": errno.ENOSPC, "I/O error": errno.EIO}
MOST_TRACEBACKS = 5  # as many as steps may fail in a row (harness/failed_steps.py)
PLACES = ("/telemetry/", "/mirror/")


def sites(last):
    """Of so many writes."""
    if SOAK:
        return range(1, last + 1)
    return [1, 2, 5, 20, *range(100, last, last // 7), *range(last - 44, last + 1, 11)]


def strike_and_go_on(host, gateway, strike):
    """What is wrong, in words, after the fault and after a start on a disk that is in order again."""
    with Session(gateway) as session:
        struck = host.run(session, strike)
        left, talk = Left(session), session.talk()
        wrong = [] if struck["status"] in (0, 1 << 8) else [f"exit {struck['status']}: {talk[-1500:]}"]
        reasons = [str(row[10]) for row in left.rows["execution_logs"]]
        tracebacks = talk.count("Traceback") + sum("Traceback" in reason for reason in reasons)
        wrong += [f"{tracebacks} tracebacks"] if tracebacks > MOST_TRACEBACKS else []
        if strike["below"] == "/mirror/" and (struck["status"], session.summary()["steps"]) != (0, STEPS):
            wrong.append("the mirror's fault ended the session")
        if host.run(session)["status"] != 0:
            return [*wrong, f"the next start failed: {session.talk()[-1500:]}"]
        later = [what for what in faults(session, left) if not what.startswith(("a traceback", "mirror:"))]
        return wrong + later


@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("action", ["fail once", "fail on"])
@pytest.mark.parametrize("place", PLACES)
def test_a_session_whose_record_cannot_be_written_goes_on_or_ends_and_loses_nothing(
    host, gateway, place, action, error
):
    points = sites(host.writes(gateway, place))
    common = {"below": place, "action": action, "error": ERRORS[error]}
    found = {at: strike_and_go_on(host, gateway, common | {"at": at}) for at in points}
    assert {at: what for at, what in found.items() if what} == {}


def test_a_record_that_cannot_be_opened_is_one_sentence_and_no_traceback(host, gateway):
    with Session(gateway) as session:
        strike = {"below": "/telemetry/", "at": 1, "action": "fail on", "error": errno.ENOSPC}
        assert host.run(session, strike)["status"] == 1 << 8
        assert session.talk().startswith("harness: the record ")
        assert "Traceback" not in session.talk()
