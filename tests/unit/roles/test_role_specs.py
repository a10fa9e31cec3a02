"""HOST: holds every role to one shape, and what playbooks give to a role to that role's specs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if (path / "tasks").is_dir())
PLAYBOOKS = sorted((ROOT / "playbooks").glob("*.yml"))
TASK_FILES = sorted((ROOT / "roles").glob("*/tasks/*.yml"))
BLOCKS = ("block", "rescue", "always")
ROLE_KEYWORDS = {"role", "name", "vars", "when", "tags", "become", "become_user", "delegate_to"}
TASK_LISTS = ("pre_tasks", "tasks", "post_tasks", "handlers")
ROLE_CALLS = tuple(
    prefix + name for prefix in ("", "ansible.builtin.") for name in ("include_role", "import_role")
)


def load(path: Path):
    return yaml.safe_load(path.read_text()) if path.exists() else None


def specs(role: str) -> dict:
    entry_points = (load(ROOT / "roles" / role / "meta/argument_specs.yml") or {}).get("argument_specs", {})
    return {
        name: spec for entry in entry_points.values() for name, spec in (entry.get("options") or {}).items()
    }


def tasks_in(items: list | None):
    """Every task of a list, those in blocks included."""
    for task in items or []:
        yield task
        for key in BLOCKS:
            yield from tasks_in(task.get(key))


def calls_in(play: dict):
    """(role, variables) for each use of a role in a play."""
    for use in play.get("roles") or []:
        use = {"role": use} if isinstance(use, str) else use
        inline = {name: use[name] for name in use.keys() - ROLE_KEYWORDS}
        yield use.get("role") or use.get("name"), inline | (use.get("vars") or {})
    for key in TASK_LISTS:
        for task in tasks_in(play.get(key)):
            for module in ROLE_CALLS:
                if module in task:
                    yield task[module]["name"], task.get("vars") or {}


def all_calls():
    for playbook in PLAYBOOKS:
        for play in load(playbook) or []:
            for role, variables in calls_in(play):
                yield pytest.param(role, variables, id=f"{playbook.stem}-{role}")


def test_there_are_roles_to_hold_to_it() -> None:
    assert {"no_delete", "backups", "volumes"} <= set(ROLES)


@pytest.mark.parametrize("role", ROLES)
def test_the_readme_says_what_it_does_what_not_and_what_proves_it(role: str) -> None:
    text = (ROOT / "roles" / role / "README.md").read_text()
    headings = [
        re.search(pattern, text, re.I) for pattern in (r"\bdoes\b", r"\bdoes not\b", r"\bwhat proves it\b")
    ]
    assert all(headings), f"roles/{role}/README.md lacks one of: it does, it does not, what proves it"
    starts = [heading.start() for heading in headings]
    assert starts == sorted(starts)


@pytest.mark.parametrize("role", ROLES)
def test_specs_and_defaults_name_the_same_variables_with_the_same_defaults(role: str) -> None:
    defaults = load(ROOT / "roles" / role / "defaults/main.yml") or {}
    promised = {name: spec["default"] for name, spec in specs(role).items() if "default" in spec}
    assert promised == defaults
    required = {name for name, spec in specs(role).items() if spec.get("required")}
    assert required | set(defaults) == set(specs(role)), "neither required nor with a default"


@pytest.mark.parametrize("role", ROLES)
def test_every_variable_carries_the_role_s_name_a_type_and_a_sentence(role: str) -> None:
    for name, spec in specs(role).items():
        assert name.startswith(f"{role}_"), name
        assert spec.get("type") and len(str(spec.get("description", ""))) > 10, name


@pytest.mark.parametrize("role", ROLES)
def test_it_comes_with_its_own_proof(role: str) -> None:
    assert load(ROOT / "roles" / role / "tasks/verify.yml"), (
        f"roles/{role}/tasks/verify.yml is missing or empty"
    )


@pytest.mark.parametrize("path", TASK_FILES, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_tasks_have_names_that_are_sentences(path: Path) -> None:
    for task in tasks_in(load(path)):
        name = task.get("name", "")
        assert name[:1].isupper() and len(name.split()) >= 3, f"{path}: {name or task}"


@pytest.mark.parametrize("role", ROLES)
def test_every_variable_a_role_reads_is_one_it_has(role: str) -> None:
    folder = ROOT / "roles" / role
    texts = {path: path.read_text() for part in ("tasks", "templates") for path in (folder / part).glob("*")}
    known = set(specs(role))
    for path in texts:
        for task in tasks_in(load(path)) if path.suffix == ".yml" and path.parent.name == "tasks" else []:
            known |= (
                {task.get("register")}
                | set(task.get("vars") or {})
                | set(task.get("ansible.builtin.set_fact") or {})
            )
    for path, text in texts.items():
        for expression in re.findall(
            r"\{\{.*?\}\}|\{%.*?%\}|(?:when|changed_when|failed_when|that):[^\n]*", text, re.S
        ):
            unquoted = re.sub(r"'[^']*'", "", expression)
            used = set(re.findall(rf"(?<![\w./]){role}_\w+", unquoted))
            assert used <= known, f"{path}: {sorted(used - known)}"


@pytest.mark.parametrize(("role", "variables"), list(all_calls()))
def test_playbooks_give_roles_only_variables_they_know(role: str, variables: dict) -> None:
    """Ansible passes a misspelt variable without a word, and the default stays in force."""
    assert role in ROLES
    assert set(variables) <= set(specs(role))


@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda path: path.stem)
def test_a_play_s_own_variables_belong_to_a_role_it_uses(playbook: Path) -> None:
    for play in load(playbook):
        known = {name for role, _ in calls_in(play) for name in specs(role)}
        own = {name for name in play.get("vars") or {} if not name.startswith(("lab_", "run_", "ansible_"))}
        assert own <= known, play["name"]


def test_playbooks_pass_ansible_s_syntax_check(tmp_path: Path) -> None:
    ansible = Path(sys.executable).parent / "ansible-playbook"
    command = [ansible, "--syntax-check", "-i", ROOT / "inventory", *PLAYBOOKS]
    environment = os.environ | {
        "ANSIBLE_ROLES_PATH": str(ROOT / "roles"),
        "ANSIBLE_LOCAL_TEMP": str(tmp_path),
        "LC_ALL": "C.UTF-8",  # it refuses any other encoding
    }
    result = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=60)
    assert result.returncode == 0, result.stderr
