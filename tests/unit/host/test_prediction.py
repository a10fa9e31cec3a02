"""TESTS: what `lab up` says it would do, and drift: on libvirt's test driver, with a set of two files."""

from __future__ import annotations

import hashlib
import os

import pytest

from labkit import (
    advice,
    drift,
    fingerprint,
    guest,
    ownership,
    prediction,
    provision,
    session,
    snapshot,
    state,
    status,
)
from labkit.errors import EVIDENCE, LabError
from labkit.prediction import BUILD, CONVERGE, NOTHING, REBUILD, REDEFINE

NETWORK = "<network><name>unit</name><ip address='192.168.77.1' netmask='255.255.255.0'/></network>"
FROZEN = {"system.qcow2": b"system", "data.qcow2": b"data"}


def domain_xml(lab, memory: int = 64) -> str:
    return (
        f"<domain type='test'><name>unit</name><memory unit='MiB'>{memory}</memory><vcpu>1</vcpu>"
        "<os><type>hvm</type></os><devices>"
        f"<disk type='file' device='disk'><source file='{lab.disks_dir}/system.qcow2'/>"
        "<target dev='vda' bus='virtio'/></disk></devices></domain>"
    )


@pytest.fixture
def built(lab, hypervisor, with_manifest):
    """A lab as `lab up` leaves it: domain and network of ours, a set, a manifest that knows them."""
    lab.dir.mkdir(parents=True)
    ours = ownership.claim(lab.dir)
    hypervisor.ensure_network("unit", NETWORK, ours["network"])
    hypervisor.ensure_domain("unit", domain_xml(lab), ours["domain"])
    lab.set_dir.mkdir(parents=True)
    for name, content in FROZEN.items():
        (lab.set_dir / name).write_bytes(content)
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in FROZEN.items()}
    with_manifest(lab, fingerprint=fingerprint.of(lab), sha256=sums)
    place = session.place(lab)
    snapshot.annotate(place, parts=fingerprint.parts(lab), **drift.facts(place, hypervisor))
    return lab


def would(lab) -> tuple[str, str]:
    found = prediction.of(lab)
    return found.would, "; ".join(found.why)


def change_parts(lab, **files: str) -> None:
    """As if the set had been made from another version of these files."""
    place = session.place(lab)
    parts = snapshot.manifest(place)["parts"]
    parts["files"] |= files
    snapshot.annotate(place, parts=parts, fingerprint="e" * 64)
    state.update(lab.dir, fingerprint="e" * 64)


def test_without_a_set_it_would_build_and_says_why(lab, hypervisor):
    assert would(lab) == (BUILD, "the guest 'unit' has no snapshot")
    assert not lab.dir.exists()


def test_as_built_it_would_do_nothing_and_nothing_has_drifted(built, hypervisor):
    assert would(built) == (NOTHING, "")
    assert drift.find(session.place(built), hypervisor) == []


def test_a_changed_safeguard_would_be_applied_to_the_old_set(built):
    change_parts(built, **{"roles/no_delete/tasks/main.yml": "0" * 64})
    assert would(built) == (CONVERGE, "roles/no_delete/tasks/main.yml (changed)")


def test_a_changed_safeguard_beside_a_changed_image_would_build_anew_and_both_are_named(built):
    names = ("roles/image/tasks/main.yml", "roles/no_delete/tasks/main.yml")
    change_parts(built, **dict.fromkeys(names, "0" * 64))
    found, why = would(built)
    assert found == REBUILD and all(name in why for name in names)


def test_a_set_of_an_older_kit_which_cannot_tell_what_changed_would_be_built_anew(built, with_manifest):
    with_manifest(built, fingerprint="e" * 64)
    assert would(built)[0] == REBUILD


def test_a_guest_edited_by_hand_is_named_by_what_differs_and_would_be_defined_again(built, hypervisor):
    uuid = hypervisor.domain("unit").UUIDString()
    hypervisor.ensure_domain("unit", domain_xml(built, memory=128), uuid)
    found, why = would(built)
    assert found == REDEFINE and "65536" in why and "131072" in why


@pytest.mark.parametrize("kind", ["domain", "network"])
def test_what_somebody_removed_is_named_and_up_defines_it_again_without_building(built, hypervisor, kind):
    before = snapshot.manifest(session.place(built))["taken_at"]
    if kind == "domain":
        hypervisor.domain("unit").undefine()
    else:
        hypervisor.network("unit").destroy()
        hypervisor.network("unit").undefine()
    assert would(built)[0] == REDEFINE and "no longer defined" in would(built)[1]
    done = provision.up(built, Quiet())
    assert (done["did"], done["snapshot"]["taken_at"]) == (REDEFINE, before)
    assert would(built) == (NOTHING, "")


class Quiet:
    def say(self, _text: str) -> None:
        pass


def test_a_drifted_guest_is_defined_again_and_is_then_as_before(built, hypervisor):
    uuid, before = hypervisor.domain("unit").UUIDString(), guest.definition(hypervisor.domain("unit"))
    hypervisor.ensure_domain("unit", domain_xml(built, memory=128), uuid)
    provision.up(built, Quiet())
    assert guest.definition(hypervisor.domain("unit")) == before


def test_a_stranger_under_our_name_is_never_redefined(built, hypervisor):
    hypervisor.domain("unit").undefine()
    foreign = domain_xml(built).replace(str(built.disks_dir), "/somewhere/else")
    hypervisor.ensure_domain("unit", foreign, "99999999-2222-4333-8444-555555555555")
    before = guest.definition(hypervisor.domain("unit"))
    with pytest.raises(LabError, match="is not this lab's"):
        provision.up(built, Quiet())
    assert guest.definition(hypervisor.domain("unit")) == before


def test_a_revert_of_a_guest_edited_by_hand_is_refused_with_the_cure(built, hypervisor):
    uuid = hypervisor.domain("unit").UUIDString()
    hypervisor.ensure_domain("unit", domain_xml(built, memory=128), uuid)
    with pytest.raises(LabError, match="not as `lab up` defined it") as caught:
        drift.refuse(session.place(built))
    assert "lab up" in caught.value.hint


def test_a_frozen_file_that_was_touched_is_named_and_up_finds_it_unchanged(built, hypervisor):
    os.utime(built.set_dir / "data.qcow2", (1, 1))
    (found,) = drift.find(session.place(built), hypervisor)
    assert found.kind == "files" and "data.qcow2" in found.said and "system.qcow2" not in found.said
    assert provision.up(built, Quiet())["did"] == NOTHING
    assert drift.find(session.place(built), hypervisor) == []


def test_a_frozen_file_with_another_content_would_be_built_anew(built):
    (built.set_dir / "data.qcow2").write_bytes(b"other")
    assert would(built) == (REBUILD, "data.qcow2 of the snapshot was changed")


def test_a_frozen_file_that_is_gone_would_be_built_anew(built, hypervisor):
    (built.set_dir / "data.qcow2").unlink()
    assert would(built) == (REBUILD, "data.qcow2 of the snapshot is gone")
    assert "are gone: data.qcow2" in drift.find(session.place(built), hypervisor)[0].said


def test_status_names_drift_and_says_what_to_type(built, hypervisor):
    os.utime(built.set_dir / "data.qcow2", (1, 1))
    said = advice.sentence(status.describe(built))
    assert "touched since the snapshot was taken: data.qcow2" in said and said.endswith("puts it right")


def test_a_second_application_that_changed_something_is_no_proof_and_names_the_tasks():
    provision.demand_unchanged({"changed": 0, "tasks": []})
    with pytest.raises(LabError, match="changed 1: Install the wrappers") as caught:
        provision.demand_unchanged({"changed": 1, "tasks": ["Install the wrappers"]})
    assert caught.value.code == EVIDENCE


def test_what_an_older_kit_built_is_up_to_date_and_gets_what_later_questions_need(built):
    path = built.set_dir / "manifest.json"
    found = {
        key: value
        for key, value in snapshot.manifest(session.place(built)).items()
        if key not in ("parts", "files", "definitions")
    }
    state.write_json(path, found)
    assert provision.up(built, Quiet())["did"] == NOTHING
    assert {"parts", "files", "definitions"} <= set(snapshot.manifest(session.place(built)))


def test_a_prediction_for_a_person_names_the_work_and_the_reasons_and_is_not_endless():
    text = prediction.Prediction(REBUILD, tuple(f"file {number}" for number in range(40))).text()
    assert text.startswith("build the guest again") and "file 11" in text and "28 more" in text
