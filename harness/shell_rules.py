"""GUEST: the read-only shell of FINAL_REPORT: an allow-list by command and by flag.

A line is taken apart here, globs included, checked, and put together again fully quoted: what runs is
what was checked, and no shell syntax survives but the pipe.
"""

from __future__ import annotations

import glob
import re
import shlex
from collections.abc import Callable

READERS = (
    "ls", "cat", "find", "grep", "head", "tail", "wc", "tree", "du", "stat", "file", "diff", "sort", "uniq",
)  # fmt: skip
_TOKEN = re.compile(r"""\s*(?:(\|)|((?:'[^']*'|"[^"$`\\]*"|[^\s'"|;&<>()$`\\])+))""")
_FIND_ACTS = re.compile(r"-(?:exec|execdir|ok|okdir|delete|fprint|fprint0|fprintf|fls)$")


class Refused(Exception):
    """Why a line may not run in the read-only shell."""


def read_only(command: str, cwd: str) -> str:
    """The line to run instead of `command`, fully quoted. Raises Refused with a reason."""
    stages = [_expand(stage, cwd) for stage in _split(command.strip())]
    for words in stages:
        _check(words)
    return " | ".join(shlex.join(words) for words in stages)


def _split(command: str) -> list[list[str]]:
    """Stages of a pipeline as raw words. Anything but words, quotes and | is refused."""
    if "\n" in command or "\0" in command:
        raise Refused("one line at a time: no line breaks")
    stages: list[list[str]] = [[]]
    at = 0
    while at < len(command):
        match = _TOKEN.match(command, at)
        if match is None:
            raise Refused(
                f"{command[at:].strip()[:1]!r} is not available: no redirection, substitution, chaining or "
                "variable (a single-quoted text may hold any character)"
            )
        at = match.end()
        if match.group(1):
            stages.append([])
        else:
            stages[-1].append(match.group(2))
    if any(not stage for stage in stages):
        raise Refused("a pipe needs a command on both sides")
    return stages


def _expand(raw_words: list[str], cwd: str) -> list[str]:
    """Quotes off; a word with an unquoted * ? [ becomes the files it matches, as the shell would do it."""
    words: list[str] = []
    for raw in raw_words:
        word = "".join(shlex.split(raw))
        bare = re.sub(r"'[^']*'|\"[^\"]*\"", "", raw)
        found = sorted(glob.glob(word, root_dir=cwd)) if re.search(r"[*?\[]", bare) else []
        words += found or [word]
    return words


def _check(words: list[str]) -> None:
    name, arguments = words[0], words[1:]
    if name not in READERS:
        raise Refused(f"{name[:40]!r} is not among the reading commands: {', '.join(READERS)}")
    if reason := _RULES.get(name, lambda _: "")(arguments):
        raise Refused(reason)


def _flags(short: str, *long: str) -> Callable[[list[str]], str]:
    """Refuse any cluster holding one of the short letters, and any long option or abbreviation of one."""

    def check(arguments: list[str]) -> str:
        for word in arguments:
            name = word.split("=", 1)[0]
            if name.startswith("--") and len(name) > 2:
                if any(option.startswith(name) for option in long):
                    return f"{word[:40]!r} could write, run or wait for something"
            elif name.startswith("-") and set(word[1:]) & set(short):
                return f"{word[:40]!r} could write, run or wait for something"
        return ""

    return check


def _find(arguments: list[str]) -> str:
    bad = [word for word in arguments if _FIND_ACTS.match(word)]
    return f"find {bad[0]} writes or runs something" if bad else ""


def _uniq(arguments: list[str]) -> str:
    """A second operand of uniq is a file it writes."""
    operands, before = 0, ""
    for word in arguments:
        counted = before in ("-f", "-s", "-w") and word.isdigit()
        operands += (word == "-" or not word.startswith("-")) and not counted
        before = word
    if operands > 1 or "--" in arguments:
        return "uniq with a second file would write it"
    return ""


_RULES: dict[str, Callable[[list[str]], str]] = {
    "find": _find,
    "uniq": _uniq,
    "sort": _flags("oT", "--output", "--compress-program", "--temporary-directory"),
    "tree": _flags("oR", "--output"),
    "file": _flags("CzZ", "--compile", "--uncompress", "--uncompress-noreport"),
    "tail": _flags("fF", "--follow", "--retry", "--pid"),
    "diff": _flags("l", "--paginate"),
}
