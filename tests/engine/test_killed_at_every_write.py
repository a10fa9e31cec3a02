"""ENGINE: a session of forty steps that is killed at a write, fsync, rename or unlink goes on whole."""

import pytest
from struck import KILLED, SOAK, Left, Session
from whole import faults

PARTS = 8
LEAST_STRUCK = 200  # in all parts together
IN_TIER = 216  # a session may make some writes less than the one that was counted
HOW = ("before", "halfway", "after")


def kill_and_go_on(host, gateway, at, how):
    """What is wrong with the run afterwards; None where the session ended before that point."""
    with Session(gateway) as session:
        killed = host.run(session, {"below": str(session.sandbox), "at": at, "action": how})
        if killed["status"] != KILLED:
            assert killed["status"] == 0, session.talk()
            return None
        left = Left(session)
        (session.outside / "first.json").unlink(missing_ok=True)
        again = host.run(session)
        if again["status"] != 0:
            return [f"the restart failed: {session.talk()[-1500:]}"]
        return faults(session, left)


def chosen(points):
    """Every point in the soak; in the tier some of the first, some of the last, and an even spread."""
    if SOAK:
        return list(range(1, points + 1))
    edges = [*range(1, 60, 3), *range(points - 110, points + 1, 4)]
    spread = IN_TIER - len(edges)
    return sorted({*edges, *(60 + n * (points - 170) // spread for n in range(spread))})


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_session_killed_at_a_write_goes_on_whole(host, gateway, part):
    points = chosen(host.writes(gateway))[part::PARTS]
    found = {at: kill_and_go_on(host, gateway, at, HOW[at % 3]) for at in points}
    wrong = {at: what for at, what in found.items() if what}
    assert wrong == {}
    struck = sum(what is not None for what in found.values())
    assert struck >= max(LEAST_STRUCK / PARTS, len(points) * 0.9)


FIRST_KILLS = (0.26, 0.49, 0.72)  # of a session's writes: somewhere in the middle
WRITES_OF_A_START = 66  # so many does a session make until it works again


def kill_twice(host, gateway, first, second):
    with Session(gateway) as session:
        below = str(session.sandbox)
        assert host.run(session, {"below": below, "at": first, "action": "after"})["status"] == KILLED
        host.run(session, {"below": below, "at": second, "action": HOW[second % 3]})
        left = Left(session)
        (session.outside / "first.json").unlink(missing_ok=True)
        if host.run(session)["status"] != 0:
            return [f"the second restart failed: {session.talk()[-1500:]}"]
        return faults(session, left)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", FIRST_KILLS)
def test_a_session_killed_again_while_it_picks_itself_up_goes_on_whole(host, gateway, first):
    first = int(first * host.writes(gateway))
    seconds = range(1, WRITES_OF_A_START, 1 if SOAK else 8)
    found = {second: kill_twice(host, gateway, first, second) for second in seconds}
    assert {second: what for second, what in found.items() if what} == {}
