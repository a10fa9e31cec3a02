"""HOST: runs the rm, unlink and shred wrapper on a sandbox in a temporary folder; nothing is diverted."""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import jinja2
import pytest

TEMPLATE = Path(__file__).parents[3] / "roles/no_delete/templates/wrapper.sh.j2"
RECORDER = '#!/bin/sh\nfor a do printf "%s\\0" "$a"; done >"${0%/*}/called"\n'
DPKG_VARIABLES = ("DPKG_MAINTSCRIPT_NAME", "DPKG_RUNNING_VERSION", "POSIXLY_CORRECT")


@dataclass
class Lab:
    """A sandbox with the wrappers before the real programs (bin) or a stand-in that records (recording)."""

    root: Path

    @property
    def sandbox(self) -> Path:
        return self.root / "sandbox"

    @property
    def notes(self) -> Path:
        return self.sandbox / "workspace/notes"

    @property
    def tools(self) -> Path:
        return self.sandbox / "workspace/tools"

    @property
    def outside(self) -> Path:
        return self.root / "outside"

    def run(
        self, *command: str, cwd: Path | None = None, bin: str = "bin", stdin: str = "", **environment: str
    ):
        program, *arguments = command
        base = {name: value for name, value in os.environ.items() if name not in DPKG_VARIABLES}
        return subprocess.run(
            [self.root / bin / program, *arguments],
            cwd=cwd or self.root,
            input=stdin,
            capture_output=True,
            text=True,
            env=base | environment,
            timeout=20,
        )

    def recorded(self) -> list[str] | None:
        """The arguments the recording stand-in was called with; None when it was not called."""
        called = self.root / "recording/called"
        return called.read_text().split("\0")[:-1] if called.exists() else None

    def trashed(self) -> list[str]:
        trash = self.sandbox / "trash"
        return sorted(str(path.relative_to(trash)).partition("/")[2] for path in trash.glob("*/**/*"))

    def tree(self) -> set[str]:
        folders = (self.sandbox, self.outside)
        return {str(p.relative_to(self.root)) for folder in folders for p in folder.rglob("*")}


def render(lab: Lab, program: str, real: str) -> str:
    environment = jinja2.Environment(
        keep_trailing_newline=True, trim_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["quote"] = shlex.quote
    text = environment.from_string(TEMPLATE.read_text()).render(
        no_delete_sandbox=str(lab.sandbox),
        no_delete_trash=f"{lab.sandbox}/trash",
        no_delete_trash_zones=[str(lab.tools), f"{lab.sandbox}/tmp"],
    )
    return text.replace("@program@", program).replace("@real@", real)


def write_program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path.resolve())
    for name in ("workspace/notes/deep", "workspace/scripts", "workspace/tools/build", "tmp", "trash"):
        (lab.sandbox / name).mkdir(parents=True)
    lab.outside.mkdir()
    write_program(lab.root / "recording/real", RECORDER)
    for program, real in (("rm", "/bin/rm"), ("unlink", "/usr/bin/unlink"), ("shred", "/usr/bin/shred")):
        write_program(lab.root / "bin" / program, render(lab, program, real))
        write_program(lab.root / "recording" / program, render(lab, program, f"{lab.root}/recording/real"))
    for name in ("a.md", "b_v2.md", "deep/c.txt", "with space.md", "new\nline.md", "-f", "*"):
        (lab.notes / name).write_text(name)
    for name in ("main.o", "conftest.c", "with space.o", "new\nline.o", "-r", "*", "build/main.o"):
        (lab.tools / name).write_text(name)
    for name in ("x", "y z"):
        (lab.outside / name).write_text(name)
    (lab.outside / "to_notes").symlink_to(lab.notes)
    (lab.outside / "to_a").symlink_to(lab.notes / "a.md")
    (lab.outside / "to_tools").symlink_to(lab.tools)
    (lab.notes / "link").symlink_to(lab.outside / "x")
    (lab.tools / "link").symlink_to(lab.notes / "a.md")
    return lab


# Braces become paths: {n} notes, {t} tools, {o} outside, {s} the sandbox. Run from the folder in the middle.
REFUSED = [
    ("a note", "{o}", "rm {n}/a.md"),
    ("a note with force", "{o}", "rm -f {n}/a.md"),
    ("a note by its relative name", "{n}", "rm a.md"),
    ("a note from a folder below", "{n}/deep", "rm ../a.md"),
    ("a note through dots", "{o}", "rm {s}/workspace/../workspace/./notes//a.md"),
    ("a note through a linked folder", "{o}", "rm to_notes/a.md"),
    ("a note from inside a linked folder", "{o}/to_notes", "rm a.md"),
    ("the tree behind a link with a slash", "{o}", "rm -r to_notes/"),
    ("a link in notes", "{n}", "rm link"),
    ("a folder", "{n}", "rm -r deep"),
    ("a folder with a slash", "{n}", "rm -rf deep/"),
    ("a name with a space", "{n}", "rm 'with space.md'"),
    ("a name with a newline", "{n}", "rm 'new\nline.md'"),
    ("a name that is a glob", "{n}", "rm '*'"),
    ("a name that is an option", "{n}", "rm -- -f"),
    ("a note named after an option's end", "{n}", "rm -rf -- a.md"),
    ("options after the operand", "{o}", "rm {n}/deep -rf"),
    ("an abbreviated long option", "{o}", "rm --rec --fo {n}/deep"),
    ("never asking", "{n}", "rm --interactive=never a.md"),
    ("a note among files outside", "{o}", "rm x {n}/a.md 'y z'"),
    ("a note among build files", "{t}", "rm main.o {n}/a.md"),
    ("the root of tools", "{o}", "rm -rf {t}"),
    ("the root of tools from inside", "{t}/build", "rm -rf ../../tools/"),
    ("the sandbox's own temporary folder", "{o}", "rm -rf {s}/tmp"),
    ("the kept trash", "{o}", "rm -rf {s}/trash"),
    ("the workspace", "{s}", "rm -rf workspace"),
    ("the folder one stands in", "{n}/deep", "rm -rf ."),
    ("unlink of a note", "{n}", "unlink a.md"),
    ("unlink after the end of options", "{n}", "unlink -- a.md"),
    ("shred of a note", "{n}", "shred a.md"),
    ("shred with a count of its own word", "{n}", "shred -n 1 -u a.md"),
    ("shred with clustered options", "{n}", "shred -zun1 a.md"),
    ("shred with a size and a source", "{n}", "shred -s 4 --random-source /dev/zero --iterations 1 a.md"),
    ("shred through a link outside", "{o}", "shred to_a"),
    ("shred through a link in tools", "{t}", "shred -u link"),
]


def words(lab: Lab, text: str) -> list[str]:
    places = {"n": lab.notes, "t": lab.tools, "o": lab.outside, "s": lab.sandbox}
    return [word.format(**places) for word in shlex.split(text)]


def test_a_refusal_is_added_to_the_sessions_list_where_there_is_one(lab: Lab):
    listed = lab.sandbox / "tmp/.lab-refused"
    assert lab.run("rm", str(lab.notes / "a.md")).returncode == 1
    assert not listed.exists()
    listed.touch()
    assert "refused" in lab.run("rm", "-rf", str(lab.notes / "a.md"), str(lab.notes / "deep")).stderr
    assert "refused" in lab.run("unlink", str(lab.notes / "a.md")).stderr
    assert lab.run("rm", "-f", str(lab.tools / "main.o")).returncode == 0
    assert listed.read_text() == "rm\nunlink\n"


@pytest.mark.parametrize(("where", "command"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_it_refuses_and_removes_nothing_at_all(lab: Lab, where: str, command: str) -> None:
    before = lab.tree()
    result = lab.run(*words(lab, command), cwd=Path(words(lab, where)[0]))
    assert result.returncode == 1
    assert lab.tree() == before
    assert result.stderr.count("\n") == 1 and ": refused: " in result.stderr
    assert (lab.notes / "a.md").read_text() == "a.md"


@pytest.mark.parametrize(
    "operand", ["/", "//", "{parent}", "{sandbox}", "{sandbox}/", "{sandbox}/../sandbox/."]
)
def test_the_sandbox_and_what_holds_it_stay(lab: Lab, operand: str) -> None:
    """With a stand-in for the real program: a fault here must not cost this machine."""
    target = operand.format(parent=lab.root, sandbox=lab.sandbox)
    result = lab.run("rm", "-rf", "--no-preserve-root", target, bin="recording")
    assert result.returncode == 1 and f"{lab.sandbox} stays" in result.stderr
    assert lab.recorded() is None


NEXT_VERSIONS = [
    ("parser.py", [], "parser_v2.py"),
    ("parser.py", ["parser_v2.py", "parser_v3.py"], "parser_v4.py"),
    ("parser_v2.py", [], "parser_v3.py"),
    ("parser_v9.py", [], "parser_v10.py"),
    ("Makefile", [], "Makefile_v2"),
    (".profile", [], ".profile_v2"),
    ("data.tar.gz", [], "data_v2.tar.gz"),
    ("with space.md", [], "with space_v2.md"),
    ("tv_v08.md", [], "tv_v08_v2.md"),
]


@pytest.mark.parametrize(("name", "there", "following"), NEXT_VERSIONS)
def test_the_refusal_names_the_next_version_that_is_free(
    lab: Lab, name: str, there: list, following: str
) -> None:
    for existing in (name, *there):
        (lab.notes / existing).touch()
    said = lab.run("rm", name, cwd=lab.notes).stderr
    assert f"leave {name} as it is and write the next version: {following}\n" in said


# What must be gone afterwards, and what the trash then holds.
KEPT = [
    ("a file", "rm main.o", ["main.o"]),
    ("what a glob names, missing names too", "rm -f main.o conftest.c no_such", ["conftest.c", "main.o"]),
    ("a folder", "rm -r build", ["build", "build/main.o"]),
    ("a folder with a slash", "rm -rf build/", ["build", "build/main.o"]),
    ("options at the end", "rm build -r", ["build", "build/main.o"]),
    ("two of one name", "rm main.o build/main.o", ["main.o", "main.o.~1~"]),
    ("odd names", "rm 'with space.o' 'new\nline.o' -- -r '*'", ["*", "-r", "new\nline.o", "with space.o"]),
    ("a link itself", "rm link", ["link"]),
    ("through a link outside", "rm {o}/to_tools/main.o", ["main.o"]),
    ("by unlink", "unlink main.o", ["main.o"]),
    ("by shred -u", "shred -u main.o", ["main.o"]),
    ("by shred --remove=wipe", "shred -n 2 --remove=wipe main.o", ["main.o"]),
]


@pytest.mark.parametrize(("command", "kept"), [row[1:] for row in KEPT], ids=[row[0] for row in KEPT])
def test_below_tools_a_removal_is_a_move_to_the_trash(lab: Lab, command: str, kept: list[str]) -> None:
    before = lab.tree()
    result = lab.run(*words(lab, command), cwd=lab.tools)
    assert (result.returncode, result.stderr) == (0, "")
    assert lab.trashed() == kept
    trash = {name for name in lab.tree() if "/trash/" in name}
    moved = sum(1 for name in trash if name.count("/") > 2)
    assert len(before - lab.tree()) == moved
    assert (lab.notes / "a.md").read_text() == "a.md"


def test_the_sandbox_s_temporary_folder_keeps_too(lab: Lab) -> None:
    (lab.sandbox / "tmp/cc1.s").write_text("code")
    assert lab.run("rm", "../tmp/cc1.s", cwd=lab.sandbox / "workspace").returncode == 0
    assert lab.trashed() == ["cc1.s"]


def test_shred_without_u_leaves_a_copy_in_the_trash_and_shreds(lab: Lab) -> None:
    assert lab.run("shred", "-n", "1", "main.o", cwd=lab.tools).returncode == 0
    assert (lab.tools / "main.o").read_bytes() != b"main.o"
    assert next((lab.sandbox / "trash").glob("*/main.o")).read_text() == "main.o"


def test_files_outside_go_and_build_files_are_kept_in_one_call(lab: Lab) -> None:
    assert lab.run("rm", "-f", str(lab.outside / "x"), "main.o", cwd=lab.tools).returncode == 0
    assert not (lab.outside / "x").exists()
    assert lab.trashed() == ["main.o"]


# Below tools/, but the real program would fail, or do nothing: so does the wrapper.
AS_THE_REAL_ONE = [
    ("rm build", 1, "Is a directory"),
    ("rm no_such", 1, "No such file"),
    ("rm -f no_such", 0, ""),
    ("rm -fi no_such", 1, "No such file"),
    ("rm -d build", 1, "not empty"),
    ("rm -rf build/.", 1, "refusing to remove"),
    ("unlink build", 1, "directory"),
    ("unlink main.o conftest.c", 1, "extra operand"),
    ("unlink no_such", 1, "No such file"),
    ("shred -u build", 1, "directory"),
    ("rm -Z main.o", 1, "unknown option '-Z'"),
    ("rm --recurse main.o", 1, "unknown option '--recurse'"),
    ("rm", 1, "missing operand"),
    ("rm -f", 0, ""),
]


@pytest.mark.parametrize(("command", "code", "said"), AS_THE_REAL_ONE)
def test_below_tools_it_fails_as_the_real_one(lab: Lab, command: str, code: int, said: str) -> None:
    before = lab.tree()
    result = lab.run(*words(lab, command), cwd=lab.tools)
    assert result.returncode == code and said in result.stderr
    assert lab.tree() == before


def test_an_empty_folder_goes_to_the_trash_with_d(lab: Lab) -> None:
    (lab.tools / "empty").mkdir()
    assert lab.run("rm", "-d", "empty", cwd=lab.tools).returncode == 0
    assert lab.trashed() == ["empty"]


@pytest.mark.parametrize(("answer", "kept"), [("y\n", ["main.o"]), ("n\n", []), ("", [])])
def test_asking_below_tools_heeds_the_answer(lab: Lab, answer: str, kept: list[str]) -> None:
    assert lab.run("rm", "-i", "main.o", cwd=lab.tools, stdin=answer).returncode == 0
    assert lab.trashed() == kept


def test_a_trash_that_takes_nothing_keeps_the_file_where_it_is(lab: Lab) -> None:
    (lab.sandbox / "trash").rmdir()
    result = lab.run("rm", "-f", "main.o", cwd=lab.tools)
    assert result.returncode == 1 and "nothing was removed" in result.stderr
    assert (lab.tools / "main.o").exists()


PASSED_ON = [
    "rm {o}/x",
    "rm -rf -- -x '*' {o}/to_notes",
    "rm -r {o}",
    "rm --help {n}/a.md",
    "rm {n}/a.md --version",
    "rm -f",
    "rm --interactive=always --preserve-root=all {o}/x",
    "unlink '{o}/y z'",
    "shred -n 3 -s 1K --random-source=/dev/zero -u {o}/x",
    "shred -",
    "rm ''",
    "rm {s}x",
    "rm /no/such/../folder",
]


@pytest.mark.parametrize("command", PASSED_ON)
def test_elsewhere_the_real_program_gets_exactly_its_arguments(lab: Lab, command: str) -> None:
    program, *arguments = words(lab, command)
    assert lab.run(program, *arguments, bin="recording", cwd=lab.outside).returncode == 0
    assert lab.recorded() == arguments


@pytest.mark.parametrize("variable", ["DPKG_MAINTSCRIPT_NAME", "DPKG_RUNNING_VERSION"])
def test_maintainer_scripts_get_the_real_program_everywhere(lab: Lab, variable: str) -> None:
    arguments = ["-rf", str(lab.notes)]
    assert lab.run("rm", *arguments, bin="recording", **{variable: "1"}).returncode == 0
    assert lab.recorded() == arguments


def test_with_posixly_correct_an_option_after_an_operand_is_a_file(lab: Lab) -> None:
    result = lab.run("rm", "main.o", "-r", cwd=lab.tools, POSIXLY_CORRECT="1")
    assert result.returncode == 0
    assert lab.trashed() == ["-r", "main.o"]


def test_a_hostile_cdpath_leads_nowhere(lab: Lab) -> None:
    result = lab.run("rm", "-r", "to_notes/", cwd=lab.outside, CDPATH="/tmp:/")
    assert result.returncode == 1 and "refused" in result.stderr


def test_a_name_with_control_characters_stays_out_of_the_message(lab: Lab) -> None:
    (lab.notes / "\x1b[2Jx").touch()
    said = lab.run("rm", "\x1b[2Jx", cwd=lab.notes).stderr
    assert "\x1b" not in said and "leave the file as it is" in said
