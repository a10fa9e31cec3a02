"""HOST: on a throw-away copy of the snapshot: idempotence, the attacks, and that ordinary work passes."""

import re

import pytest

from labkit import snapshot

RECAP = re.compile(r"^guest +: ok=(\d+) +changed=(\d+) +unreachable=0 +failed=0", re.M)


@pytest.fixture(scope="module")
def running(lab, built):
    lab.resume()
    yield lab
    snapshot.switch_off(lab.place)


def test_a_second_run_of_the_playbook_changes_nothing_in_the_guest(running):
    done = running.playbook("up", "--limit", "guests")
    ok, changed = map(int, RECAP.search(done.out).groups())
    assert ok > 5 and changed == 0, done.out


def test_check_predicts_no_change_also_without_mitogen(running):
    done = running.playbook("up", "--limit", "guests", "--check", fast=False)
    ok, changed = map(int, RECAP.search(done.out).groups())
    assert ok > 5 and changed == 0, done.out


def test_every_safeguard_holds_when_the_worker_attacks_it(running):
    done = running.playbook("verify", "--limit", "guests")
    assert int(RECAP.search(done.out).group(1)) >= 7, done.out


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("ten_apt_installs.sh", "packages were installed and one was purged"),
        ("build_with_configure.sh", "configure, make, install and clean passed"),
        ("coreutils_reinstall.sh", "coreutils was reinstalled and the wrappers stand"),
    ],
)
def test_ordinary_work_passes_with_the_safeguards_on(running, script, words):
    last = running.as_worker(script)
    assert last.startswith("ok: ") and words in last
