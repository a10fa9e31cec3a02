"""HOST: the documents, compared with the code: verbs, paths, links, packages, roles, variables, numbers."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest
import typer.main
import yaml

from harness import guards, phases, prompting
from harness.telemetry import events
from labkit import cli, config, errors, receipt_checks, snapshot

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()
SKIPPED = {".venv", "runs", "node_modules", ".git", ".pytest_cache", ".hypothesis", "build"}
PAGES = sorted(path for path in ROOT.rglob("*.md") if not SKIPPED & set(path.relative_to(ROOT).parts))
# Prompts are the harness's, not documents; their words are what a model reads.
DOCUMENTS = [path for path in PAGES if ROOT / "harness/prompts" not in path.parents]
VERBS = set(typer.main.get_command(cli.app).commands)
# Pages may say of a verb that it is not there yet.
PLANNED = {"report"}
# A column, and a refusal of the gateway.
NOT_VARIABLES = {"run_id", "run_ended"}
INVENTORY = sorted((ROOT / "inventory").rglob("*.yml"))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def section(title: str) -> str:
    """The text below a heading of the README, up to the next of its rank."""
    return re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", README, re.S | re.M)[1]


def first_cells(text: str) -> list[str]:
    """The first cell of each table row, headings and rules left out."""
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    return [cell for cell in rows if not set(cell) <= set("- ")]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


def in_readme_table(title: str) -> set[str]:
    return {word for cell in first_cells(section(title)) for word in quoted(cell)}


@pytest.mark.parametrize("page", DOCUMENTS, ids=name)
def test_every_verb_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    inline = re.findall(r"`(?:sudo )?(?:\./)?lab ([a-z]+)[^`\n]*`", text)
    typed = re.findall(r"^    (?:\./)?lab ([a-z]+)", text, re.M)
    assert set(inline + typed) <= VERBS | PLANNED


def test_the_planned_verbs_are_planned_still() -> None:
    assert not PLANNED & VERBS, "a verb exists now: take it out of PLANNED and into the README"


def test_the_readme_lists_every_verb_once() -> None:
    listed = re.findall(r"^\| `lab (\w+)` \|", README, re.M)
    assert sorted(listed) == sorted(VERBS)


def test_every_path_in_the_where_table_exists() -> None:
    rows = [line.split("|")[2] for line in section("Where is it?").splitlines() if line.startswith("| ")]
    paths = [word for row in rows for word in quoted(row) if "/" in word]
    assert len(paths) > 30
    missing = [path for path in paths if not any(ROOT.glob(path.rstrip("/")))]
    assert missing == []


@pytest.mark.parametrize("folder", ["labkit", "labkit/gateway", "harness"])
def test_every_module_a_parts_readme_names_exists(folder: str) -> None:
    text = (ROOT / folder / "README.md").read_text()
    named = {word for cell in re.findall(r"^\|.*\|$", text, re.M) for word in quoted(cell)}
    modules = {word for word in named if re.fullmatch(r"[\w/]+\.py", word)}
    assert len(modules) > 8
    assert [module for module in sorted(modules) if not (ROOT / folder / module).is_file()] == []


@pytest.mark.parametrize("page", DOCUMENTS, ids=name)
def test_every_relative_link_resolves(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_the_root_of_the_project_has_what_the_readme_types() -> None:
    for file in ("lab", "Vagrantfile", "LICENSE", "labkit/apt-packages.txt"):
        assert (ROOT / file).is_file()


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_every_direct_dependency_has_a_row_with_its_reason() -> None:
    wanted = project()["dependencies"] + [
        package for extra in project()["optional-dependencies"].values() for package in extra
    ]
    declared = {re.match(r"[A-Za-z0-9-]+", package)[0].lower() for package in wanted}
    apt = set((ROOT / "labkit/apt-packages.txt").read_text().split())
    listed = in_readme_table("What it is made of") - {"lab", "notebook", "test"}
    assert listed == declared | apt


def test_the_harness_packages_are_named() -> None:
    for line in (ROOT / "harness/requirements.in").read_text().splitlines():
        if line and not line.startswith("#"):
            assert f"`{re.match(r'[a-z0-9-]+', line)[0]}`" in section("What it is made of")


def test_the_readme_lists_exactly_the_roles_there_are() -> None:
    roles = {path.name for path in (ROOT / "roles").iterdir() if (path / "tasks").is_dir()}
    table = section("Where is it?").split("The roles,")[1]
    assert {word for cell in first_cells(table) for word in quoted(cell)} == roles


def comments_of(path: Path) -> dict[str, bool]:
    """Top-level variable to: a comment beside it, above it, or above its paragraph."""
    found, heard = {}, False
    for line in path.read_text().splitlines():
        variable = re.match(r"([a-z]\w*):", line)
        if not line.strip():
            heard = False
        elif line.startswith("#"):
            heard = True
        elif variable:
            found[variable[1]] = heard or "#" in line
    return found


@pytest.mark.parametrize("path", [path for path in INVENTORY if "group_vars" in path.parts], ids=name)
def test_every_inventory_variable_is_explained_where_it_stands(path: Path) -> None:
    explained = comments_of(path)
    assert set(explained) == set(yaml.safe_load(path.read_text()))
    assert [variable for variable, is_explained in explained.items() if not is_explained] == []


@pytest.mark.parametrize("page", DOCUMENTS, ids=name)
def test_every_inventory_variable_a_page_names_exists(page: Path) -> None:
    known = {variable for path in INVENTORY for variable in yaml.safe_load(path.read_text())}
    modules = {path.stem for path in ROOT.glob("roles/*/library/*.py")}
    named = {word for word in quoted(page.read_text()) if re.fullmatch(r"(?:lab|run)_\w+", word)}
    assert named - known - modules - NOT_VARIABLES == set()


def test_every_exit_code_has_a_row() -> None:
    codes = {value for key, value in vars(errors).items() if key.isupper() and isinstance(value, int)}
    rows = {int(cell) for cell in first_cells(section("What to type afterwards")) if cell.isdigit()}
    assert rows == codes | {130}


def test_every_bad_input_has_an_exit_code_and_a_test_that_exists() -> None:
    lines = (ROOT / "docs/errors.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")][2:]
    codes = {str(value) for key, value in vars(errors).items() if key.isupper() and isinstance(value, int)}
    assert len(rows) > 30
    for what, sentence, code, test in rows:
        file, _, function = test.strip("`").partition("::")
        assert sentence and code in codes - {"0"}, what
        assert f"\ndef {function}(" in (ROOT / "tests/unit/host" / file).read_text(), what


def test_the_vocabulary_knows_every_phase_and_guard() -> None:
    words = (ROOT / "docs/vocabulary.md").read_text()
    assert [phase.name for phase in phases.PHASES if phase.name not in words] == []
    assert [guard.name for guard in guards.GUARDS if guard.name not in words] == []


def test_every_blank_of_the_workers_prompt_is_told_to_who_writes_one() -> None:
    page = (ROOT / "docs/simulate.md").read_text()
    blanks = set(prompting.BLANK.findall(prompting.text("worker")))
    assert [blank for blank in sorted(blanks) if f"`{{{{{blank}}}}}`" not in page] == []


def test_interfaces_lists_every_event_word() -> None:
    text = (ROOT / "docs/interfaces.md").read_text()
    assert [word for word in sorted(events.WORDS) if word not in text] == []


def test_every_check_of_a_receipt_is_in_the_snapshot_page() -> None:
    tree = ast.parse(Path(receipt_checks.__file__).read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    made = {
        call.args[0].value
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "check"
    }
    page = (ROOT / "snapshots/README.md").read_text()
    assert len(made) >= 7
    assert [check for check in sorted(made) if f"| `{check}` |" not in page] == []


def test_the_manifest_schema_has_the_keys_that_are_written() -> None:
    dicts = [
        node
        for node in ast.walk(ast.parse(Path(snapshot.__file__).read_text()))
        if isinstance(node, ast.Dict)
    ]
    keys = [[key.value for key in node.keys if isinstance(key, ast.Constant)] for node in dicts]
    (written,) = [found for found in keys if "format" in found]
    schema = json.loads((ROOT / "snapshots/manifest.schema.json").read_text())
    assert schema["required"] == written
    added_later = {"verified_at", "parts", "files", "definitions"}
    assert set(schema["properties"]) == {*written, *added_later}


def test_the_snapshot_page_names_every_file_of_a_set() -> None:
    schema = json.loads((ROOT / "snapshots/manifest.schema.json").read_text())
    table = (ROOT / "snapshots/README.md").read_text().split("## How a set is made")[0]
    named = {word for cell in first_cells(table) for word in quoted(cell)}
    assert named == {*schema["properties"]["sha256"]["required"], "manifest.json"}


def test_decisions_are_numbered_without_a_gap_and_indexed() -> None:
    files = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
    assert [int(path.name[:4]) for path in files] == list(range(1, len(files) + 1))
    index = (ROOT / "docs/decisions/README.md").read_text()
    for path in files:
        text = path.read_text()
        assert f"({path.name})" in index
        assert text.startswith(f"# {int(path.name[:4])}. ")
        assert all(f"**{part}.**" in text for part in ("Context", "Decision", "Consequence"))


def test_the_data_use_warning_stands_where_a_model_is_chosen() -> None:
    shipped = config.load(ROOT / "inventory").run["run_model"]
    if shipped.endswith("-contributor"):
        assert "WARNING" in section("A real model: key, choice, cost")
        assert "WARNING" in (ROOT / "inventory/group_vars/all/run.yml").read_text()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_page_names_a_place_of_the_machine_it_was_written_on(page: Path) -> None:
    places = r"(?<![\w.])/(?:work|root|home|tmp/exp)/|\.\./shared|localhost:\d{4}/mirror|\bissue \d"
    assert re.findall(places, page.read_text()) == []
