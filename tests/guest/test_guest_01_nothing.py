"""HOST: before `lab up`: every verb says what is missing and what to type, and touches nothing of others."""

import guest_lab
import pytest

from labkit.errors import NOT_READY
from labkit.guest import Hypervisor


def test_doctor_finds_this_machine_ready_for_the_tests_guest(lab):
    findings = lab.lab("doctor", "--json").json
    assert {"packages", "libvirt", "memory", "disk"} <= {finding["check"] for finding in findings}
    assert [finding for finding in findings if finding["state"] == "fail"] == []


def test_status_says_that_there_is_no_guest_and_what_builds_one(nothing):
    known = nothing.lab("status", "--json").json
    assert (known["guest"], known["snapshot"], known["run"]) == ("absent", "none", None)
    assert "`lab up` builds the guest" in nothing.lab("status").out


@pytest.mark.parametrize(
    ("words", "sentence", "cure"),
    [
        (("run", "--model", "rehearsal", "--minutes", "2"), "has no snapshot", "`lab up`"),
        (("revert",), "has no snapshot", "`lab up`"),
        (("ssh",), "there is no guest named 'labtest'", "`lab up`"),
        (("collect",), "no run is in the guest", "`lab run`"),
        (("watch",), "no run is in the guest", "`lab run`"),
        (("finish",), "no run is in the guest", "`lab run`"),
    ],
)
def test_a_verb_that_needs_a_guest_says_so_and_what_to_type(nothing, words, sentence, cure):
    done = nothing.lab(*words, code=NOT_READY)
    assert sentence in done.err and cure in done.err
    assert done.out == "" and "Traceback" not in done.err


def test_down_with_nothing_there_is_fine(nothing):
    assert nothing.lab("down", "--json").json == {"removed": []}


def test_up_and_down_refuse_a_domain_of_that_name_that_is_not_ours_and_leave_it_alone(nothing):
    guest_lab.define_stranger()
    before = guest_lab.stranger()
    try:
        for verb in ("up", "down"):
            done = nothing.lab(verb, code=NOT_READY)
            assert "a libvirt domain named 'labtest' exists and is not this lab's" in done.err
            assert "choose another lab_name" in done.err
            assert guest_lab.stranger() == before
        with Hypervisor() as hypervisor:
            assert hypervisor.network("labtest") is None
    finally:
        guest_lab.remove_stranger()
    assert nothing.lab("down", "--json").json["removed"] == [str(nothing.config.dir)]
