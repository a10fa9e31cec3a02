"""UNIT: the read-only shell of the final phase refuses what could write, and lets reading through."""

import shutil
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
    "sed -n 'w y' x.md",
    "sed -n '1e touch y' x.md",
    "awk 'BEGIN{system(\"touch y\")}' x.md",
    "find . | xargs -I@ touch y",
    "env touch y",
    "env -S 'touch y'",
    "git -c core.pager='touch y' log",
    "git -c alias.x='!touch y' x",
    "tar -cf y x.md",
    "tar --to-command='touch y' -xf x.tar",
    "man -P 'touch y' ls",
    "less x.md",
    "rg --pre ./evil x .",
    "date -s 2030-01-01",
    "hostname y",
    "tee y",
    "dd of=y",
    "cp x.md y",
    "mv x.md y",
    "ln x.md y",
    "truncate -s 0 x.md",
    "find . -name x.md -files0-from y",
    "find . -D exec -name x",
    "sort -k -o y x.md -o y",
    "sort -uT. x.md",
    "sort --random-source=x -R x.md",
    "tree -Lo 1 y",
    "tree -aL1o y",
    "tree --output y",
    "grep --devices=read x x.md",
    "du --files0-from=x.md",
    "diff -l x.md x.md",
    "diff --to-file=y x.md",
    "ls --hyperlink-to=y",
    "stat --cached=never x.md",
    "uniq x.md -c y.md",
    "uniq -cf 1 x.md y.md",
    "l\\s -la; touch y",
    "cat x.md 2>y",
    "cat x.md &> y",
    "A=1 ls",
    "command touch y",
    "exec touch y",
    "eval touch y",
    ". x.md",
    "source x.md",
    "! touch y",
    "{ touch y; }",
    "(touch y)",
    "ls \\\ntouch y",
    "time touch y",
    "nohup touch y",
    "coproc touch y",
    "busybox touch y",
    "find . -exe\\c touch y +",
    "find . \"-exec\" touch y '{}' +",
    "find . '-exec' touch y '{}' ';'",
    "tail +1f x.md",
    "tail +f x.md",
    "sort -\\o y x.md",
    "sort -t, -S 1k -o y x.md",
    "sort --debug x.md",
    "uniq +1 x.md y.md",
    "uniq -w 1 x.md y.md",
    "uniq --check-chars 1 x.md y.md",
    "uniq - - y.md",
    "uniq -- x.md -- y.md",
    "uniq *",
    "tail -n1 --retry x.md",
    "tail --pid=1 x.md",
    "find . -files0-from x.md",
    "find . , -delete",
    "find . '!' -delete",
    "find . -name x -o -delete",
    "find . -fpri\\nt y",
    "find . -size -exec touch",
    "find -O3 . -delete",
    "tree -P x -o=y",
    "tree -PL -o y",
    "tree --fromfile y",
    "file -f x.md",
    "file -P bytes=1 x.md",
    "file --files-from x.md",
    "diff -D X x.md x.md",
    "diff --ifdef=x x.md x.md",
    "diff -X x.md . .",
    "du -X x.md",
    "du --time .",
    "grep --line-buffered x x.md",
    "ls --dired",
    "ls -D",
    "ls |& cat",
    "ls || cat",
    "cat x.md >| y",
    "cat x.md 1<>y",
    "cat <<< x",
    "cat x.md | uniq -c - y",
    "wc --files0-from=x.md",
    "printf x",
    "'' ls",
    "a=b ls",
    'sort -k1,1"`touch p`" x.md',
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
    "cat odd\\ name\\;\\ rm\\ -rf.md",
    "find . \\( -name '*.md' -o -name '*.py' \\) -printf '%s %p\\n' | sort -rn",
    "find . -mtime -1 -size -10k -maxdepth 2",
    "grep -rl --include='*.md' two .",
    "grep -A 2 -B1 -e '-o' -e two x.md",
    "head -2 x.md",
    "tail -c20 x.md",
    "sort -t: -k2n --unique x.md",
    "uniq -cw 3 x.md",
    "diff -u --label a x.md x.md",
    "du -ah --max-depth=1 .",
    "stat -c '%n %s' x.md",
    "file -b --mime-type x.md",
    "ls -lt --time-style=full-iso | head -n5",
    "wc -lw x.md",
    "tail -n +2 x.md",
    "ls -d */",
    "cat ./n?tes/../x.m[d]",
    "ls -d /et[c] /usr/b*n/",
    *(["tree -L 2 -pI '*.py' ."] if shutil.which("tree") else []),
]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "x.md").write_text("b 2\na 1\ntwo words\n")
    (tmp_path / "odd name; rm -rf.md").write_text("odd\n")
    (tmp_path / "notes").mkdir()
    return tmp_path


def test_no_escape_stands_twice_and_there_are_forty_at_least():
    assert len(set(ESCAPES)) == len(ESCAPES) >= 40


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


def test_a_pattern_over_a_whole_system_is_given_up_for_the_harness_expands_it_itself(folder):
    for number in range(5):
        (folder / f"d{number}" / "a").mkdir(parents=True)
    up_and_down = "/".join(["*", ".."] * 9)  # five folders at each star: two million ways
    with pytest.raises(Refused, match="too many files"):
        read_only(f"ls {up_and_down}/nothing*", str(folder))


def test_what_runs_is_quoted_so_that_only_the_pipe_is_left_of_the_shell(folder):
    assert read_only("cat *.md|grep {a,b} ~", str(folder)) == (
        "cat 'odd name; rm -rf.md' x.md | grep '{a,b}' '~'"
    )
