"""UNIT: the read-only shell of the final phase refuses what could write, and lets reading through."""

import subprocess

import pytest

from harness.shell_rules import Refused, read_only

ESCAPES = [
    "rm x.md",
    "ls > out.txt",
    "cat x.md >> y.md",
    "cat < x.md",
    "ls; touch y",
    "ls && touch y",
    "ls || touch y",
    "ls & touch y",
    "ls\ntouch y",
    "ls $(touch y)",
    "ls `touch y`",
    'ls "$(touch y)"',
    "ls ${HOME}",
    "cat <(touch y)",
    "find . -exec touch y ;",
    "find . -execdir touch y +",
    "find . -ok touch y",
    "find . -okdir touch y",
    "find . -delete",
    "find . '-delete'",
    "find . -fprint y",
    "find . -fprint0 y",
    "find . -fprintf y %p",
    "find . -fls y",
    "sort -o y x.md",
    "sort -uo y x.md",
    "sort -oy x.md",
    "sort --output=y x.md",
    "sort --ou y x.md",
    "sort --compress-program=./evil x.md",
    "sort --comp ./evil x.md",
    "sort -T . x.md",
    "uniq x.md y.md",
    "uniq - y.md",
    "uniq -c x.md y.md",
    "uniq -- x.md y.md",
    "uniq -- -f 1",
    "tree -o y",
    "tree -ao y",
    "tree -R -L 1 -H . ",
    "file -C -m magic",
    "file --compile",
    "file -z x.md",
    "tail -f x.md",
    "tail --follow x.md",
    "ls | tee y",
    "ls | xargs touch",
    "cat x.md | sh",
    "/tmp/ls",
    "./ls",
    "LD_PRELOAD=./x.so ls",
    "python3 -c 'open(1)'",
    "awk '{print > \"y\"}' x.md",
    "sed -i s/a/b/ x.md",
    "sudo ls",
    "bash -c ls",
    "ls |",
    "| ls",
    "ls 'unterminated",
    "l\\s",
    "",
]
HONEST = [
    "ls",
    "ls -la notes",
    "cat x.md",
    "cat *.md",
    "cat x.md | head -5",
    "find . -name '*.md' -type f",
    "find . -newer x.md -size +1k",
    "find . ! -name x.md",
    "grep -rnE 'a|b$' .",
    'grep -c "two words" x.md',
    "head -n 3 x.md",
    "tail -n 3 x.md",
    "wc -l x.md",
    "du -sh .",
    "stat x.md",
    "diff x.md x.md",
    "sort -rn -k2,2 x.md | uniq -c | sort -rn | head",
    "sort -t , -k1 x.md",
    "uniq -f 1 x.md",
    "cat 'odd name; rm -rf.md'",
]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "x.md").write_text("b 2\na 1\ntwo words\n")
    (tmp_path / "odd name; rm -rf.md").write_text("odd\n")
    (tmp_path / "notes").mkdir()
    return tmp_path


@pytest.mark.parametrize("line", ESCAPES)
def test_an_escape_is_refused_with_a_reason(line, folder):
    with pytest.raises(Refused) as refusal:
        read_only(line, str(folder))
    assert len(str(refusal.value)) > 10


@pytest.mark.parametrize("line", HONEST)
def test_honest_reading_runs_and_changes_nothing(line, folder):
    before = sorted(path.name for path in folder.rglob("*"))
    checked = read_only(line, str(folder))
    done = subprocess.run(["bash", "-c", checked], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in folder.rglob("*")) == before


def test_a_file_name_that_is_an_option_is_caught_after_the_glob(folder):
    (folder / "-delete").touch()
    with pytest.raises(Refused):
        read_only("find *", str(folder))


def test_what_runs_is_quoted_so_that_only_the_pipe_is_left_of_the_shell(folder):
    assert read_only("cat *.md|grep {a,b} ~", str(folder)) == (
        "cat 'odd name; rm -rf.md' x.md | grep '{a,b}' '~'"
    )
