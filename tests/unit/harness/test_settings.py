"""UNIT: run.json is taken whole or refused by name."""

import json

import pytest
from harness_run import run_settings

from harness import prompting, settings
from harness.errors import SettingsError


def test_the_file_is_read_and_paths_follow_the_sandbox(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(run_settings(tmp_path)))
    wanted = settings.load(tmp_path / "run.json")
    assert wanted.paths.sealed_db == tmp_path / "telemetry" / "sealed" / "run.db"
    assert wanted.paths.mirror_db == tmp_path / "mirror" / "run.db"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"minuts": 3}, "minuts"),
        ({"minutes": "three"}, "minutes"),
        ({"minutes": 0}, "minutes"),
        ({"minutes": float("nan")}, "minutes"),
        ({"budget_usd": float("inf")}, "budget_usd"),
        ({"price_output_per_mtok": -1}, "price_output_per_mtok"),
        ({"nudge_every_minutes": 0}, "nudge_every_minutes"),
        ({"request_timeout_seconds": 0}, "request_timeout_seconds"),
        ({"output_limit_chars": -5}, "output_limit_chars"),
        ({"budget_usd": True}, "budget_usd"),
        ({"network_programs": "curl"}, "network_programs"),
        ({"window_min_steps": 7}, "window_min_steps"),
        ({"tool_user": 1}, "tool_user"),
    ],
)
def test_a_wrong_key_or_value_is_named(tmp_path, change, named):
    with pytest.raises(SettingsError, match=named):
        settings.from_dict(run_settings(tmp_path, **change))


def test_a_missing_key_is_named(tmp_path):
    raw = run_settings(tmp_path)
    del raw["token"]
    with pytest.raises(SettingsError, match="lacks: token"):
        settings.from_dict(raw)


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_file_that_is_no_settings_is_refused(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(SettingsError, match="run.json"):
        settings.load(tmp_path / "run.json")


def test_a_prompt_of_ones_own_takes_the_place_of_the_shipped_one_and_its_blanks_are_filled(tmp_path):
    (tmp_path / "workspace").mkdir()
    raw = run_settings(tmp_path, prompt="Go.\n{{task}} in {{workspace}}\n", task="count {{timeout}}")
    built = prompting.build(settings.from_dict(raw))["worker"]
    assert built.startswith("Go.\nYour operator has set this task:\n\ncount {{timeout}} in ")
    assert built.endswith(f" {tmp_path}/workspace\n")
