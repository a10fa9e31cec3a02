"""HOST: `lab up` once more: what it would do, that applying it twice changes nothing, and drift."""

import guest_lab

from labkit import session, snapshot, state
from labkit.domain_xml import with_uuid
from labkit.errors import NOT_READY
from labkit.guest import Hypervisor, definition

WRAPPER = "roles/no_delete/templates/wrapper.sh.j2"
soak = guest_lab.only_in_soak("minutes more")


def taken_at(lab) -> str:
    return snapshot.manifest(session.place(lab.config))["taken_at"]


def edit_by_hand(lab, old: str, new: str) -> None:
    """As `virsh edit` would."""
    with Hypervisor() as hypervisor:
        domain = hypervisor.domain(lab.config.name)
        xml = definition(domain)
        assert old in xml
        hypervisor.connection.defineXML(with_uuid(xml.replace(old, new), domain.UUIDString()))


def test_what_was_just_built_needs_nothing(lab, built):
    found = lab.lab("up", "--check", "--json").json
    assert (found["would"], found["why"]) == ("nothing", [])


def test_a_changed_value_is_named_and_check_changes_nothing(lab, built):
    path = lab.inventory / "group_vars/all/guest.yml"
    before = path.read_text()
    path.write_text(before.replace("lab_vcpus: 2", "lab_vcpus: 3"))
    try:
        found = lab.lab("up", "--check", "--json").json
        refused = lab.lab("run", "--model", "rehearsal", "--minutes", "2", code=NOT_READY)
    finally:
        path.write_text(before)
    assert (found["would"], found["why"]) == ("rebuild", ["lab_vcpus: 2 is now 3"])
    assert "lab up --check" in refused.err
    assert taken_at(lab) == built["snapshot"]["taken_at"]


def test_the_safeguards_applied_a_second_time_change_nothing_and_the_guest_is_off_again(lab, built):
    assert lab.lab("up", "--converge", "--json").json == {"changed": 0, "tasks": []}
    known = lab.lab("status", "--json").json
    assert (known["guest"], known["snapshot"]) == ("off", "verified")


def test_a_guest_edited_by_hand_is_named_refused_and_put_right_without_building(lab, built):
    edit_by_hand(lab, "<on_crash>destroy</on_crash>", "<on_crash>restart</on_crash>")
    assert any("on_crash" in line for line in lab.lab("status", "--json").json["drift"])
    for words in (("revert",), ("run", "--model", "rehearsal", "--minutes", "2")):
        assert "not as `lab up` defined it" in lab.lab(*words, code=NOT_READY).err
    assert lab.lab("up", "--json").json["did"] == "redefine"
    assert taken_at(lab) == built["snapshot"]["taken_at"]
    assert lab.lab("status", "--json").json["drift"] == []


def test_a_network_that_is_gone_is_named_and_comes_back(lab, built):
    with Hypervisor() as hypervisor:
        network = hypervisor.network(lab.config.name)
        if network.isActive():
            network.destroy()
        network.undefine()
    assert "no longer defined" in lab.lab("revert", code=NOT_READY).err
    assert lab.lab("up", "--json").json["did"] == "redefine"
    assert lab.lab("revert", "--json").json["holds"] is True


def test_a_cold_or_warm_revert_touches_no_frozen_file(lab, built):
    assert lab.lab("status", "--json").json["drift"] == []


@soak
def test_changed_safeguards_are_applied_to_the_old_set_and_a_new_one_is_taken(lab, built):
    place = session.place(lab.config)
    parts = snapshot.manifest(place)["parts"]
    parts["files"][WRAPPER] = "0" * 64
    snapshot.annotate(place, parts=parts, fingerprint="e" * 64)
    state.update(place.dir, fingerprint="e" * 64)
    before = taken_at(lab)
    done = lab.lab("up", "--json", seconds=1200).json
    assert done["did"] == "converge" and WRAPPER in done["why"][0]
    assert done["snapshot"]["taken_at"] > before and done["snapshot"]["verified"] is True
    assert lab.lab("up", "--check", "--json").json["would"] == "nothing"
    assert lab.lab("revert", "--json").json["holds"] is True
