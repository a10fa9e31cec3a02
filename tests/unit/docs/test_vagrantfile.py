"""HOST: the Vagrantfile, evaluated by a stand-in for Vagrant that writes down what was set."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
VAGRANTFILE = ROOT / "Vagrantfile"
RECORDER = Path(__file__).with_name("vagrant_recorder.rb")
GUEST = yaml.safe_load((ROOT / "inventory/group_vars/all/guest.yml").read_text())
# Provider to the second disk's name there: the box's controllers differ.
PROVIDERS = {"libvirt": "/dev/vdb", "virtualbox": "/dev/sdb"}

needs_ruby = pytest.mark.skipif(shutil.which("ruby") is None, reason="no ruby here: apt-get install ruby")


def evaluate(provider: str, **environment: str) -> list[list]:
    """What Vagrant would be told for one provider: [dotted name, arguments ...], in order."""
    done = subprocess.run(
        ["ruby", RECORDER, VAGRANTFILE, provider],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **environment},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def value(calls: list[list], name: str) -> object:
    found = [call[1] for call in calls if call[0] == name]
    assert len(found) == 1, f"{name} was set {len(found)} times"
    return found[0]


@needs_ruby
@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_box_is_as_large_as_the_inventory_says(provider: str) -> None:
    calls = evaluate(provider)
    assert value(calls, f"{provider}.cpus=") == GUEST["lab_vcpus"]
    assert value(calls, f"{provider}.memory=") == GUEST["lab_memory_mb"]
    sizes = json.dumps([call for call in calls if call[0].endswith((".disk", ".storage"))])
    assert f'"{GUEST["lab_data_disk_gb"]}G' in sizes


@needs_ruby
@pytest.mark.parametrize(("provider", "disk"), PROVIDERS.items())
def test_the_safeguards_get_the_inventory_and_the_providers_second_disk(provider: str, disk: str) -> None:
    calls = evaluate(provider)
    assert (ROOT / value(calls, "ansible.playbook=")).is_file()
    assert value(calls, "ansible.extra_vars=") == {**GUEST, "volumes_disk": disk}
    assert list(value(calls, "ansible.groups=")) == ["guests"]
    assert value(calls, "ansible.become=") is True


@needs_ruby
def test_another_inventory_counts(tmp_path: Path) -> None:
    folder = tmp_path / "group_vars/all"
    folder.mkdir(parents=True)
    (folder / "guest.yml").write_text("lab_vcpus: 7\n")
    calls = evaluate("libvirt", LAB_INVENTORY=str(tmp_path))
    assert value(calls, "libvirt.cpus=") == 7
    assert value(calls, "libvirt.memory=") == GUEST["lab_memory_mb"]


@needs_ruby
def test_no_folder_of_the_host_is_shared_with_the_guest() -> None:
    shares = [call for call in evaluate("libvirt") if call[0].endswith("synced_folder")]
    assert shares == [["config.vm.synced_folder", ".", "/vagrant", {"disabled": True}]]


def test_without_ruby_the_sizes_can_still_be_seen_to_come_from_the_inventory() -> None:
    text = VAGRANTFILE.read_text()
    for name in ("lab_vcpus", "lab_memory_mb", "lab_disk_gb", "lab_data_disk_gb"):
        assert f'guest["{name}"]' in text
        assert name in GUEST


def test_a_box_gets_the_same_safeguards_as_the_labs_own_guest() -> None:
    def imported(playbook: str) -> list[str]:
        plays = yaml.safe_load((ROOT / "playbooks" / playbook).read_text())
        return [play["ansible.builtin.import_playbook"] for play in plays if len(play) == 2]

    assert imported("vagrant.yml") == ["safeguards.yml"]
    assert imported("up.yml") == ["safeguards.yml", "rebooted.yml"]
