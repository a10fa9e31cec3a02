"""HOST: `lab down` removes what `lab up` made, and no collected run."""

import guest_lab
import pytest

from labkit.guest import Hypervisor


@pytest.mark.skipif(guest_lab.KEEP, reason="LAB_TEST_KEEP keeps the guest")
def test_down_removes_guest_network_and_folder_but_no_collected_run(lab, collected):
    removed = lab.lab("down", "--json").json["removed"]
    assert removed == ["domain labtest", "network labtest", str(lab.config.dir)]
    with Hypervisor() as hypervisor:
        assert hypervisor.domain("labtest") is None and hypervisor.network("labtest") is None
    assert not lab.config.dir.exists()
    assert (collected / "run.db").is_file() and any(lab.config.images_dir.iterdir())
    assert lab.lab("down", "--json").json == {"removed": []}
