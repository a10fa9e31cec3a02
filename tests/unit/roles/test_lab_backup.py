"""HOST: runs lab-backup with the real rsync on a workspace in a temporary folder."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import jinja2
import pytest

TEMPLATE = Path(__file__).parents[3] / "roles/backups/templates/lab-backup.sh.j2"

pytestmark = pytest.mark.skipif(not shutil.which("rsync"), reason="rsync is not installed")


class Lab:
    """A workspace with one note, an empty backup folder, and the program."""

    def __init__(self, root: Path, **settings) -> None:
        self.root = root
        self.workspace, self.backups, self.program = (
            root / "work space",
            root / "backups",
            root / "lab-backup",
        )
        (self.workspace / "notes").mkdir(parents=True, exist_ok=True)
        self.backups.mkdir(exist_ok=True)
        self.note = self.workspace / "notes/a.md"
        self.note.write_text("first\n")
        self.install(**settings)

    def install(
        self, keep: int = 50, keep_days: int = 0, lock_seconds: int = 5, must_be_mounted: bool = False
    ) -> None:
        environment = jinja2.Environment(keep_trailing_newline=True, undefined=jinja2.StrictUndefined)
        environment.filters |= {
            "quote": shlex.quote,
            "bool": bool,
            "ternary": lambda x, yes, no: yes if x else no,
        }
        text = environment.from_string(TEMPLATE.read_text()).render(
            backups_source=str(self.workspace),
            backups_dest=str(self.backups),
            backups_keep=keep,
            backups_keep_days=keep_days,
            backups_lock_seconds=lock_seconds,
            backups_must_be_mounted=must_be_mounted,
        )
        self.program.write_text(text)
        self.program.chmod(0o755)

    def backup(self, *before: str) -> subprocess.CompletedProcess:
        return subprocess.run([*before, self.program], capture_output=True, text=True, timeout=30)

    def generation(self) -> Path:
        """Makes one, which must succeed."""
        result = self.backup()
        assert result.returncode == 0, result.stderr
        return Path(result.stdout.strip())

    def names(self) -> list[str]:
        return sorted(path.name for path in self.backups.glob("gen-*"))


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_a_generation_keeps_what_is_overwritten_in_place_afterwards(lab: Lab) -> None:
    first = lab.generation()
    with lab.note.open("r+") as file:
        file.write("second\n")
    second = lab.generation()
    assert (first.name, second.name) == ("gen-00001", "gen-00002")
    assert (first / "notes/a.md").read_text() == "first\n"
    assert (second / "notes/a.md").read_text() == "second\n"


def test_unchanged_files_are_shared_by_generations_but_never_with_the_workspace(lab: Lab) -> None:
    first, second = lab.generation(), lab.generation()
    inodes = [path.stat().st_ino for path in (lab.note, first / "notes/a.md", second / "notes/a.md")]
    assert inodes[1] == inodes[2] != inodes[0]


def test_a_rewrite_of_the_same_size_within_a_second_is_seen(lab: Lab) -> None:
    os.utime(lab.note, ns=(10**18, 10**18))
    lab.generation()
    lab.note.write_text("FIRST\n")
    os.utime(lab.note, ns=(10**18, 10**18 + 5))
    assert (lab.generation() / "notes/a.md").read_text() == "FIRST\n"


def test_modes_links_and_odd_names_are_kept(lab: Lab) -> None:
    script = lab.workspace / "-odd\nname.py"
    script.write_text("x")
    script.chmod(0o750)
    (lab.workspace / "link").symlink_to("/no/where")
    generation = lab.generation()
    assert (generation / script.name).stat().st_mode & 0o777 == 0o750
    assert os.readlink(generation / "link") == "/no/where"


def test_what_an_interrupted_backup_left_is_removed_and_not_built_upon(lab: Lab) -> None:
    lab.generation()
    (lab.backups / "gen-00002.partial/notes").mkdir(parents=True)
    (lab.backups / "gen-00002.partial/notes/half").write_text("x")
    second = lab.generation()
    assert lab.names() == ["gen-00001", "gen-00002"]
    assert not (second / "notes/half").exists()


def test_only_so_many_generations_stay_and_numbers_go_on(lab: Lab) -> None:
    lab.install(keep=2)
    for _ in range(4):
        lab.generation()
    assert lab.names() == ["gen-00003", "gen-00004"]
    assert (lab.backups / "gen-00003/notes/a.md").read_text() == "first\n"


def aged(lab: Lab, hours: dict[str, float]) -> None:
    """Tell lab-backup that generations are so many hours old: nobody but the kernel sets that time."""
    finding = lab.root / "bin/find"
    finding.parent.mkdir(exist_ok=True)
    start = 1_800_000_000  # the beginning of an hour
    lines = "".join(f"echo {name} {start - age * 3600:.1f}\n" for name, age in hours.items())
    finding.write_text(
        f'#!/bin/sh\ncase "$*" in *printf*) {lines};; *) exec {shutil.which("find")} "$@" ;; esac\n'
    )
    date = lab.root / "bin/date"
    date.write_text(f"#!/bin/sh\necho {start}\n")
    for program in (finding, date):
        program.chmod(0o755)


def test_of_older_generations_the_first_of_each_hour_stays_for_so_many_days(lab: Lab) -> None:
    ages = {"gen-00001": 30, "gen-00002": 5.9, "gen-00003": 5.5, "gen-00004": 4.5, "gen-00005": 0.2}
    for name in ages:
        (lab.backups / name).mkdir()
    lab.install(keep=2, keep_days=1)
    aged(lab, {**ages, "gen-00006": 0})
    lab.backup("env", f"PATH={lab.root / 'bin'}:{os.environ['PATH']}")
    assert lab.names() == ["gen-00002", "gen-00004", "gen-00005", "gen-00006"]


def test_generations_just_made_are_within_the_days_that_are_kept(lab: Lab) -> None:
    lab.install(keep=1, keep_days=1)
    for _ in range(3):
        lab.generation()
    kept = lab.names()
    assert kept[-1] == "gen-00003" and kept[0] == "gen-00001" and len(kept) <= 3


def test_numbers_pass_an_octal_looking_one(lab: Lab) -> None:
    (lab.backups / "gen-00089").mkdir()
    assert lab.generation().name == "gen-00090"


def test_a_full_disk_is_one_sentence_and_no_generation(lab: Lab) -> None:
    small = 'mount -t tmpfs -o size=256k none "$0" && "$1"; code=$?; ls "$0"; exit $code'
    (lab.workspace / "big").write_bytes(os.urandom(1 << 20))
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", small, lab.backups, lab.program]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30)
    if "unshare" in result.stderr or "mount:" in result.stderr:
        pytest.skip(f"no mount namespace can be had here: {result.stderr.strip()}")
    assert result.returncode == 1
    assert result.stderr == (
        f"lab-backup: {lab.backups} is full; gen-00001 was not made, the older ones are whole\n"
    )
    assert result.stdout == ""


def test_a_failing_rsync_is_one_sentence_and_no_generation(lab: Lab) -> None:
    failing = lab.root / "bin/rsync"
    failing.parent.mkdir()
    failing.write_text("#!/bin/sh\necho 'rsync: input/output error' >&2\nexit 23\n")
    failing.chmod(0o755)
    result = lab.backup("env", f"PATH={failing.parent}:{os.environ['PATH']}")
    assert result.returncode == 1 and result.stderr.count("\n") == 1
    assert "rsync failed (23)" in result.stderr and "input/output error" in result.stderr
    assert lab.names() == []


def test_files_that_vanish_meanwhile_do_not_fail_it(lab: Lab) -> None:
    vanishing = lab.root / "bin/rsync"
    vanishing.parent.mkdir()
    vanishing.write_text(f'#!/bin/sh\n{shutil.which("rsync")} "$@"\nexit 24\n')
    vanishing.chmod(0o755)
    result = lab.backup("env", f"PATH={vanishing.parent}:{os.environ['PATH']}")
    assert result.returncode == 0 and lab.names() == ["gen-00001"]


def test_a_second_one_does_not_run_into_the_first(lab: Lab) -> None:
    lab.install(lock_seconds=0)
    (lab.backups / ".lock").touch()
    result = lab.backup("flock", str(lab.backups / ".lock"))
    assert result.returncode == 1 and "another lab-backup" in result.stderr
    assert lab.names() == []


def test_without_a_file_system_of_its_own_it_refuses(lab: Lab) -> None:
    lab.install(must_be_mounted=True)
    result = lab.backup()
    assert result.returncode == 1 and f"nothing is mounted at {lab.backups}" in result.stderr


def test_a_missing_workspace_is_named(lab: Lab) -> None:
    shutil.rmtree(lab.workspace)
    result = lab.backup()
    assert result.returncode == 1 and f"there is no workspace {lab.workspace}" in result.stderr
    assert lab.names() == []
