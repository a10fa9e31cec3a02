"""UNIT: run.json is taken whole or refused by name."""

import json

import pytest
from harness_run import run_settings

from harness import settings
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
        ({"budget_usd": True}, "budget_usd"),
        ({"network_programs": "curl"}, "network_programs"),
        ({"window_min_steps": 6}, "window_min_steps"),
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
