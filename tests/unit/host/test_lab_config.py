"""TESTS: what is wrong in an inventory is said in one sentence before anything is built from it."""

from __future__ import annotations

import pytest

from labkit import config
from labkit.errors import USAGE, LabError


def refusal(inventory, **files) -> LabError:
    with pytest.raises(LabError) as caught:
        config.load(inventory(**files))
    assert caught.value.code == USAGE and caught.value.hint
    return caught.value


def test_the_shipped_inventory_holds():
    assert config.load(config.SHIPPED_INVENTORY).name == "lab"


def test_unset_variables_keep_the_shipped_value(make_lab):
    lab = make_lab(guest={"lab_vcpus": 4})
    assert lab.guest["lab_vcpus"] == 4
    assert lab.guest["lab_memory_mb"] == config.load().guest["lab_memory_mb"]


def test_a_misspelt_variable_is_named_with_the_nearest_one(inventory):
    error = refusal(inventory, guest={"lab_memory_bm": 2048})
    assert "lab_memory_bm" in error.message and error.hint == "did you mean lab_memory_mb?"


def test_a_variable_in_the_wrong_file_is_sent_to_the_right_one(inventory):
    error = refusal(inventory, run={"lab_vcpus": 2})
    assert error.hint == "it belongs in group_vars/all/guest.yml"


def test_a_name_that_is_not_even_a_text_is_refused_in_words(inventory):
    assert "unknown variable 7" in refusal(inventory, guest={7: 1}).message


@pytest.mark.parametrize("value", ["2", 2.5, True, None])
def test_a_value_of_another_type_is_refused(inventory, value):
    assert "lab_vcpus" in refusal(inventory, guest={"lab_vcpus": value}).message


def test_a_whole_number_will_do_for_dollars(make_lab):
    assert make_lab(run={"run_budget_usd": 3}).run["run_budget_usd"] == 3


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("lab_name", ""),  # `lab down` would remove every lab of this host
        ("lab_name", ".."),
        ("lab_name", "a/b"),
        ("lab_name", "images"),
        ("lab_state_dir", "relative"),
        ("lab_state_dir", "/"),
        ("lab_state_dir", "/var/../etc"),
        ("lab_image", "debian-11"),
        ("lab_virt", "xen"),
        ("lab_vcpus", 0),
        ("lab_memory_mb", 64),
        ("lab_mirror_gb", 64),
        ("lab_network_cidr", "192.168.150.1/24"),
        ("lab_network_cidr", "nonsense"),
        ("lab_guest_address", "192.168.99.10"),
        ("lab_guest_address", "192.168.150.1"),
        ("lab_guest_address", "192.168.150.255"),
        ("lab_guest_mac", "01:00:5e:00:00:01"),
        ("lab_worker_user", "root"),
        ("lab_worker_user", "a b"),
        ("lab_state_dir", "/var/lib/my labs"),
        ("lab_state_dir", "/var/lib/{{ x }}"),
        ("lab_state_dir", "/var/lib/100%s"),
        ("lab_sandbox", "/etc"),
        ("lab_sandbox", "/usr/local/sandbox"),
        ("lab_sandbox", "/tmp/sandbox"),
        ("lab_sandbox", "sandbox"),
        ("lab_host_ca_bundle", "bundle.pem"),
        ("lab_image_mirror", "deb.debian.org/debian"),
        ("lab_image_packages", []),
        ("lab_image_packages", ["two words"]),
        ("lab_image_packages", [7]),
    ],
)
def test_a_value_that_cannot_work_is_named(inventory, variable, value):
    assert variable in refusal(inventory, guest={variable: value}).message


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("run_minutes", 0),
        ("run_budget_usd", float("nan")),
        ("run_gateway_port", 99_999),
        ("run_report_reserve_fraction", 10.0),
        ("run_disk_limit_percent", 920),
        ("run_command_timeout_seconds", -1),
        ("run_backup_every_steps", 0),
        ("run_output_limit_chars", 0),
        ("run_repeat_limit", 7),
        ("run_model", ""),
        ("run_model", "two words"),
        ("run_model_warnings", {"word": 7}),
        ("run_network_programs", ["curl -s"]),
        ("run_network_programs", [True]),  # YAML's `on`
    ],
)
def test_a_number_of_a_run_that_cannot_work_is_named(inventory, variable, value):
    assert variable in refusal(inventory, run={variable: value}).message


def test_a_provider_without_an_address_is_named(inventory):
    error = refusal(inventory, run={"run_providers": {"mine": {"key_env": "MY_KEY"}}})
    assert "provider mine" in error.message and "base_url" in error.message


OURS = {"base_url": "http://127.0.0.1:8080/v1", "key_env": ""}


@pytest.mark.parametrize(
    ("providers", "said"),
    [
        ({}, "run_providers is empty"),
        ({"../mine": OURS}, "which is not a word"),
        ({1: OURS}, "which is not a word"),
        ({"mine": None}, "wants base_url and key_env"),
        ({"mine": OURS | {"base_ulr": "x"}}, "has base_ulr; it may have base_url, key_env"),
    ],
)
def test_providers_that_would_fail_later_are_refused_in_words(inventory, providers, said):
    assert said in refusal(inventory, run={"run_providers": providers}).message


@pytest.mark.parametrize("key", ["key_env", "management_key_env"])
def test_a_key_where_its_variable_should_be_is_refused_and_not_shown(inventory, key):
    mine = OURS | {key: "sk-or-v1-canary"}
    error = refusal(inventory, run={"run_providers": {"mine": mine}})
    assert f"{key} of provider mine is not the name of a variable" in error.message
    assert "canary" not in str(error)


def test_a_package_without_which_no_guest_comes_up_is_named(inventory, make_lab):
    shipped = make_lab().guest["lab_image_packages"]
    for needed in ("openssh-server", "cloud-init", "linux-image-cloud-amd64"):
        packages = [name for name in shipped if name != needed]
        assert needed in refusal(inventory, guest={"lab_image_packages": packages}).message


def test_who_adds_a_provider_keeps_the_shipped_ones(make_lab):
    assert set(make_lab(run={"run_providers": {"mine": OURS}}).run["run_providers"]) == {
        "mine",
        "openrouter",
        "rehearsal",
    }


@pytest.mark.parametrize("text", ["a: [", "- just\n- a list\n", "lab_name: \xff"])
def test_a_file_that_is_no_list_of_variables_is_named(inventory, text):
    folder = inventory()
    (folder / config.GUEST_FILE).write_bytes(text.encode("latin-1"))
    with pytest.raises(LabError, match=r"guest\.yml") as caught:
        config.load(folder)
    assert caught.value.code == USAGE


@pytest.mark.parametrize("file", [config.HOSTS_FILE, config.GUEST_FILE, config.RUN_FILE])
def test_a_folder_that_is_no_inventory_says_which_file_is_missing(inventory, file):
    folder = inventory()
    (folder / file).unlink()
    with pytest.raises(LabError, match=f"{file} is missing"):
        config.load(folder)


def test_the_environment_names_the_inventory_where_no_option_does(inventory, monkeypatch):
    monkeypatch.setenv("LAB_INVENTORY", str(inventory()))
    assert config.load().name == "unit"
