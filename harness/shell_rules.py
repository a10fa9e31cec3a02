"""GUEST: the read-only shell of FINAL_REPORT: an allow-list by command and by flag.

A line is taken apart here, globs included, checked, and put together again fully quoted: what runs is
what was checked, and no shell syntax survives but the pipe. A flag that stands in no row below is refused.
"""

from __future__ import annotations

import glob
import os
import re
import shlex
import time
from dataclasses import dataclass

_PIECE = r"""'[^']*'|"[^"$`\\]*"|\\[^\n]|[^\s'"|;&<>()$`\\]"""
_TOKEN = re.compile(rf"\s*(?:(\|)|((?:{_PIECE})+))")
_WILD = re.compile(r"[*?\[]")
GLOB_SECONDS, GLOB_MOST = 5.0, 100_000  # this runs in the harness itself, where no time limit ends it


class Refused(Exception):
    """Why a line may not run in the read-only shell."""


@dataclass(frozen=True)
class Flags:
    """What one command may be given.

    short, valued: letters without and with a value; long, long_valued: the same, whole names only.
    operands: how many words that are no flag. attached: whether `-n5` is `-n 5` (not so for tree, which would
    go on reading flags).
    """

    short: str = ""
    valued: str = ""
    long: tuple[str, ...] = ()
    long_valued: tuple[str, ...] = ()
    operands: int = 100_000
    attached: bool = True


# A letter in the wrong column would let the word behind it pass unread: check it against the manual.
_FLAGS = {
    "ls": Flags(
        "aAbBcCdfFgGhHiklLmnNopqQrRsStuUvxXZ1", "ITw",
        ("all", "almost-all", "classify", "color", "directory", "full-time", "group-directories-first",
         "human-readable", "inode", "numeric-uid-gid", "recursive", "reverse", "size"),
        ("format", "hide", "ignore", "sort", "time", "time-style", "width"),
    ),
    "cat": Flags("AbeEnstTuv", "", ("number", "number-nonblank", "show-all", "squeeze-blank")),
    "grep": Flags(
        "abcEFGhHiIlLnoPqrRsTUvVwxyzZ0123456789", "ABCDdefm",
        ("color", "count", "extended-regexp", "files-with-matches", "files-without-match", "fixed-strings",
         "ignore-case", "invert-match", "line-number", "line-regexp", "no-filename", "no-messages",
         "only-matching", "perl-regexp", "quiet", "recursive", "text", "with-filename", "word-regexp"),
        ("after-context", "before-context", "context", "exclude", "exclude-dir", "file", "include",
         "max-count", "regexp"),
    ),
    "head": Flags("qvz0123456789", "cn", ("quiet", "silent", "verbose"), ("bytes", "lines")),
    "tail": Flags("qvz0123456789", "cn", ("quiet", "silent", "verbose"), ("bytes", "lines")),
    "wc": Flags("cmlwL", "", ("bytes", "chars", "lines", "max-line-length", "words")),
    "tree": Flags("adfghilnpqrstuvxACDFJNQSUX", "LPI", ("dirsfirst", "du", "noreport"), attached=False),
    "du": Flags(
        "0abcDhHklLmPsSx", "Bdt", ("all", "apparent-size", "bytes", "human-readable", "summarize", "total"),
        ("block-size", "exclude", "max-depth", "threshold"),
    ),
    "stat": Flags("Lft", "c", ("dereference", "file-system", "terse"), ("format", "printf")),
    "file": Flags("bhikLNr", "F", ("brief", "dereference", "mime", "mime-encoding", "mime-type")),
    "diff": Flags(
        "abBcdeEiNnpqrstTuwyZ0123456789", "CFILUWx",
        ("brief", "ignore-all-space", "ignore-blank-lines", "ignore-case", "new-file", "recursive",
         "report-identical-files", "side-by-side", "suppress-common-lines", "unified"),
        ("exclude", "label", "width"),
    ),
    "sort": Flags(
        "bdfgiMhnrVcCmsuz", "ktS",
        ("check", "general-numeric-sort", "human-numeric-sort", "ignore-case", "numeric-sort", "reverse",
         "stable", "unique", "version-sort"),
        ("field-separator", "key"),
    ),
    # A second operand of uniq is a file that it writes.
    "uniq": Flags(
        "cdDiuz", "fsw", ("count", "ignore-case", "repeated", "unique"),
        ("check-chars", "skip-chars", "skip-fields"), operands=1,
    ),
}  # fmt: skip
# find has an expression of its own. A word that begins with a dash is one of these or a number.
_FIND = {
    "-H", "-L", "-P", "-name", "-iname", "-path", "-ipath", "-wholename", "-iwholename", "-regex",
    "-iregex", "-regextype", "-lname", "-ilname", "-type", "-xtype", "-size", "-empty", "-newer",
    "-anewer", "-cnewer", "-newermt", "-newerct", "-mtime", "-mmin", "-atime", "-amin", "-ctime", "-cmin",
    "-perm", "-user", "-group", "-uid", "-gid", "-nouser", "-nogroup", "-links", "-inum", "-samefile",
    "-maxdepth", "-mindepth", "-mount", "-xdev", "-depth", "-prune", "-print", "-print0", "-printf", "-ls",
    "-quit", "-true", "-false", "-not", "-o", "-or", "-a", "-and", "-daystart", "-follow", "-readable",
    "-writable", "-executable",
}  # fmt: skip
_OLD_FOLLOW = re.compile(r"\+\d*[bcl]?f")  # tail: `+1f` is -f, written as in the seventies
_FIND_NUMBER = re.compile(r"-\d+[bcwkMG]?")
READERS = (*_FLAGS, "find")


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
        pieces = re.findall(_PIECE, raw)
        texts = [_unquoted(piece) for piece in pieces]
        pattern = "".join(
            piece if piece == text else glob.escape(text) for piece, text in zip(pieces, texts, strict=True)
        )
        is_wild = any(_WILD.fullmatch(piece) for piece in pieces)
        found = _matching(pattern, cwd) if is_wild else []
        words += found or ["".join(texts)]
    return words


def _matching(pattern: str, cwd: str) -> list[str]:
    """Sorted, folder by folder, so that a pattern over a whole system can be given up."""
    found, ends = ["/" if pattern.startswith("/") else ""], time.monotonic() + GLOB_SECONDS
    for part in filter(None, pattern.split("/")):
        reached: list[str] = []
        for folder in found:
            names = glob.glob(part, root_dir=os.path.join(cwd, folder))
            reached += [os.path.join(folder, name) for name in names]
            if len(reached) > GLOB_MOST or time.monotonic() > ends:
                raise Refused("the pattern takes in too many files; name a folder")
        found = reached
    if pattern.endswith("/"):
        found = [f"{name}/" for name in found if os.path.isdir(os.path.join(cwd, name))]
    return sorted(found)


def _unquoted(piece: str) -> str:
    if piece[0] in "'\"":
        return piece[1:-1]
    return piece[1:] if piece[0] == "\\" else piece


def _check(words: list[str]) -> None:
    name, arguments = words[0], words[1:]
    if name == "find":
        return _check_find(arguments)
    if name not in _FLAGS:
        raise Refused(f"{name[:40]!r} is not among the reading commands: {', '.join(READERS)}")
    flags, rest, operands = _FLAGS[name], list(arguments), 0
    while rest:
        word = rest.pop(0)
        if word == "--":
            operands += len(rest)
            break
        if word == "-" or not word.startswith("-"):
            operands += 1
            if name == "tail" and _OLD_FOLLOW.fullmatch(word):
                raise _unknown(name, word)
        elif _wants_value(name, flags, word) and rest:
            rest.pop(0)
    if operands > flags.operands:
        raise Refused(f"{name} with a second file would write it")


def _wants_value(name: str, flags: Flags, word: str) -> bool:
    """Whether the next word is this flag's value. Raises Refused for a flag that is in no row."""
    if word.startswith("--"):
        option, has_value, _ = word[2:].partition("=")
        if option not in flags.long + flags.long_valued:
            raise _unknown(name, word)
        return option in flags.long_valued and not has_value
    for at, letter in enumerate(word[1:], start=2):
        if letter in flags.valued:
            if at < len(word) and not flags.attached:
                raise _unknown(name, word)
            return at == len(word)
        if letter not in flags.short:
            raise _unknown(name, word)
    return False


def _unknown(name: str, word: str) -> Refused:
    return Refused(
        f"{name} {word[:40]!r} is not among the flags that only read; leave it out or write it in full"
    )


def _check_find(arguments: list[str]) -> None:
    for word in arguments:
        if word.startswith("-") and word not in _FIND and not _FIND_NUMBER.fullmatch(word):
            raise Refused(f"find {word[:40]!r} is not among the tests and actions that only read")
