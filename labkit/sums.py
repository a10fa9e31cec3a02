"""HOST: SHA256SUMS of a collected run. Owns the format (sha256sum's own) and the check against it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from labkit import plain_file
from labkit.errors import EVIDENCE, LabError

NAME = "SHA256SUMS"
ALWAYS_LISTED = ("run.db", "manifest.json")  # a list without them is not the one that a collect wrote
_LINE = re.compile(rb"(\\?)([0-9a-f]{64}) [ *](.+)", re.DOTALL)
_ESCAPES = {b"\\": b"\\\\", b"\n": b"\\n", b"\r": b"\\r"}


@dataclass(frozen=True)
class Problem:
    """A file that does not hold. kind: missing | altered | unlisted | unreadable."""

    path: str
    kind: str


@dataclass(frozen=True)
class Check:
    """The result of a check: how many files were listed, and what does not hold."""

    listed: int
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """True when every listed file is as listed. A file nobody listed is reported, no breach."""
        return all(problem.kind == "unlisted" for problem in self.problems)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with plain_file.opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write(run_dir: Path, sums: Mapping[str, str]) -> Path:
    """Writes SHA256SUMS; `sums` maps paths below run_dir (with /) to hex digests."""
    lines = b"".join(_line(os.fsencode(name), sums[name]) for name in sorted(sums))
    path = run_dir / NAME
    path.write_bytes(lines)
    return path


def verify_sums(run_dir: Path) -> Check:
    """Compares every file with SHA256SUMS. Raises LabError (EVIDENCE) when that list cannot be read."""
    listed = read(run_dir)
    problems = [problem for name, digest in listed.items() if (problem := _problem(run_dir, name, digest))]
    for name in _present(run_dir):
        if name not in listed:
            problems.append(Problem(name, "unlisted"))
    return Check(len(listed), tuple(problems))


def _line(name: bytes, digest: str) -> bytes:
    escaped = re.sub(rb"[\\\n\r]", lambda match: _ESCAPES[match[0]], name)
    return (b"\\" if escaped != name else b"") + digest.encode() + b"  " + escaped + b"\n"


def read(run_dir: Path) -> dict[str, str]:
    """Path -> hex digest, as SHA256SUMS has them. Raises LabError (EVIDENCE) when it cannot be read."""
    try:
        lines = plain_file.read(run_dir / NAME).split(b"\n")
    except OSError as error:
        raise LabError(
            f"{run_dir} has no readable {NAME}: it was not collected whole",
            "`lab collect` brings a run again while the guest still has it",
            EVIDENCE,
        ) from error
    return dict(_entry(run_dir, line) for line in lines if line)


def _entry(run_dir: Path, line: bytes) -> tuple[str, str]:
    match = _LINE.fullmatch(line)
    if not match:
        raise LabError(f"{run_dir / NAME} has a line that is no sum: {line[:80]!r}", "", EVIDENCE)
    escaped, digest, name = match.groups()
    if escaped:
        name = re.sub(rb"\\(.)", lambda m: {b"n": b"\n", b"r": b"\r"}.get(m[1], m[1]), name)
    return os.fsdecode(name), digest.decode()


def _problem(run_dir: Path, name: str, digest: str) -> Problem | None:
    path = run_dir / name
    if path.is_symlink() or not path.is_file():
        return Problem(name, "missing")
    try:
        return None if file_sha256(path) == digest else Problem(name, "altered")
    except OSError:
        return Problem(name, "unreadable")


def _present(run_dir: Path) -> Iterator[str]:
    """Every file and link below the run, as a path with /, without SHA256SUMS; links are not followed."""
    for folder, folders, files in os.walk(run_dir):
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        for name in sorted([*files, *links]):
            relative = (Path(folder) / name).relative_to(run_dir).as_posix()
            if relative != NAME:
                yield relative
