"""HOST: `lab up`: from nothing to a verified snapshot, and twice is once."""


def test_up_leaves_a_verified_snapshot_and_the_guest_off(lab, built):
    assert built["snapshot"]["verified"] is True
    assert {"system.qcow2", "data.qcow2", "ram.save", "domain.xml"} <= set(built["snapshot"]["sha256"])
    known = lab.lab("status", "--json").json
    assert (known["guest"], known["snapshot"], known["dirty"]) == ("off", "verified", False)


def test_a_second_up_has_nothing_to_do(lab, built):
    again = lab.lab("up", "--json").json
    assert again["changed"] == 0
    assert again["snapshot"]["taken_at"] == built["snapshot"]["taken_at"]
    assert "nothing to do" in lab.lab("up").out


def test_a_shell_in_a_guest_that_is_off_is_refused_with_what_to_type(lab, built):
    done = lab.lab("ssh", code=4)
    assert "the guest 'labtest' is off" in done.err and "`lab run` starts it" in done.err


def test_another_inventory_is_named_by_an_option_as_well(lab, built):
    known = lab.lab("status", "--json", "--inventory", str(lab.inventory)).json
    assert known["lab"] == "labtest"
