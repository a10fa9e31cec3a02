"""HOST: on a throw-away copy of the snapshot: building passes with the safeguards on. Minutes each."""

import guest_lab
import pytest

from labkit import snapshot

pytestmark = [
    guest_lab.only_in_soak("minutes each"),
    pytest.mark.timeout(2400),
]


@pytest.fixture(scope="module")
def running(lab, built):
    lab.resume()
    yield lab
    snapshot.switch_off(lab.place)


@pytest.mark.parametrize("part", ["git", "pip", "toolchain", "twenty_packages", "npm"])
def test_building_passes_with_the_safeguards_on(running, part):
    said = running.ssh(
        f"sudo -n -H -u worker sh -s {part}", stdin=guest_lab.SCRIPTS / "build_more.sh", seconds=2000
    )
    assert said.strip().splitlines()[-1].startswith(f"ok: {part} passed")
