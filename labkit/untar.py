"""HOST: unpacks an archive that a hostile guest may have made. Owns what may come out of it, and how much.

Only plain files and folders below a fixed list of names come out. Everything else is skipped and
listed. Whatever the archive does, the worst result is that extraction stops early and says so.
"""

from __future__ import annotations

import errno
import hashlib
import os
import tarfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from labkit.errors import NOT_READY, LabError
from labkit.tarstream import CHUNK, Forward, TooLong, is_in_order, members, unzipped

FILES = frozenset({"run.db", "mirror.db", "summary.json"})
FOLDERS = frozenset({"workspace", "backup", "outputs"})

GIB = 1024**3
MAX_LISTED = 5000


@dataclass(frozen=True)
class Limits:
    """How much a guest may hand over. Bytes, where the name does not say otherwise."""

    total_bytes: int = 32 * GIB  # kept; more stops the extraction
    file_bytes: int = 8 * GIB  # a larger file is skipped
    files: int = 500_000  # folders count too; more stops the extraction
    stream_bytes: int = 256 * GIB  # read, skipped files included: ends a gzip bomb
    seconds: float = 4 * 3600  # of transfer: a stream can drip without end
    path_bytes: int = 1024
    name_bytes: int = 255
    depth: int = 100


@dataclass
class Extraction:
    """What came out. `sums` maps each file's path to its SHA-256; `stopped` is None at a proper end.

    `entries` counts folders too: that is what the limit on files is held against.
    """

    files: int = 0
    entries: int = 0
    bytes: int = 0
    skipped: list[dict[str, str]] = field(default_factory=list)
    skipped_count: int = 0
    stopped: str | None = None
    sums: dict[str, str] = field(default_factory=dict)

    def skip(self, name: str, reason: str) -> None:
        """Counts a member that was left out, and lists the first MAX_LISTED of them."""
        self.skipped_count += 1
        if len(self.skipped) < MAX_LISTED:
            self.skipped.append({"name": printable(name), "reason": reason})


class _Stop(Exception):
    """The extraction ends here, and why."""


class _Skip(Exception):
    """This member is left out, and why."""


def extract(archive: BinaryIO, into: Path, limits: Limits | None = None) -> Extraction:
    """Unpacks a tar stream (gzip or plain) into the existing folder `into`.

    Never raises for what the archive contains; LabError (NOT_READY) when this host cannot write.
    """
    limits, result = limits or Limits(), Extraction()
    try:
        stream = Forward(unzipped(archive), limits.stream_bytes, limits.seconds)
        for tar, member in members(stream):
            _one(tar, member, Path(into), limits, result)
        stream.expect_end()
    except (_Stop, TooLong) as stop:
        result.stopped = str(stop)
    except LabError:
        raise
    except Exception as error:  # a parser fed with hostile bytes: whatever it raises means "damaged"
        result.stopped = f"the archive is damaged or broke off after {result.files} files ({_named(error)})"
    return result


def printable(name: str) -> str:
    """A name for a list: no lone surrogates, no control characters, at most 300 characters."""
    text = name.encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:300])


def _one(
    tar: tarfile.TarFile, member: tarfile.TarInfo, into: Path, limits: Limits, result: Extraction
) -> None:
    try:
        parts = _parts(member, limits)
        if not parts:
            return
        if result.entries >= limits.files:
            raise _Stop(f"more than {limits.files} files; stopped at {printable(member.name)}")
        if member.isdir():
            _make_folder(into, parts, result)
        else:
            _make_file(tar, member, into, parts, limits, result)
    except _Skip as skip:
        result.skip(member.name, str(skip))


def _parts(member: tarfile.TarInfo, limits: Limits) -> list[str]:
    """The member's path below the run's folder. Raises _Skip for what must not become a file."""
    name = member.name
    if name.startswith("/"):
        raise _Skip("absolute path")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise _Skip("path leaves the tree")
    _check_names(name, parts, limits)
    if parts:
        _check_kind(member, parts, limits)
    return parts


def _check_names(name: str, parts: list[str], limits: Limits) -> None:
    try:
        raw, longest = os.fsencode(name), max((len(os.fsencode(part)) for part in parts), default=0)
    except UnicodeError:
        raise _Skip("name cannot be written on this host") from None
    if b"\0" in raw:
        raise _Skip("NUL in the name")
    if len(raw) > limits.path_bytes or longest > limits.name_bytes or len(parts) > limits.depth:
        raise _Skip("name too long")


def _check_kind(member: tarfile.TarInfo, parts: list[str], limits: Limits) -> None:
    if member.issym() or member.islnk():
        kind = "symbolic" if member.issym() else "hard"
        raise _Skip(f"{kind} link to {printable(member.linkname)}")
    if not (member.isreg() or member.isdir()):
        raise _Skip("device, pipe or other special file")
    if parts[0] in FILES and (len(parts) > 1 or member.isdir()):
        raise _Skip(f"{parts[0]} must be a file")
    if parts[0] in FOLDERS and len(parts) == 1 and not member.isdir():
        raise _Skip(f"{parts[0]} must be a folder")
    if parts[0] not in FILES | FOLDERS:
        raise _Skip("not expected at the top")
    if not is_in_order(member.sparse or []):
        raise _Skip("odd map of a sparse file")
    if not 0 <= member.size <= limits.file_bytes:
        raise _Skip(f"{member.size} bytes, more than {limits.file_bytes} for one file")


def _make_folder(into: Path, parts: list[str], result: Extraction) -> None:
    path = into
    for part in parts:
        path = path / part
        try:
            path.mkdir(mode=0o755)
            result.entries += 1
        except FileExistsError:
            # no link is ever made below `into`, so what is there is a folder or a file of ours
            if not path.is_dir():
                raise _Skip("a file of that name came first") from None
        except OSError as error:
            raise _host_error(error, path) from error


def _make_file(
    tar: tarfile.TarFile,
    member: tarfile.TarInfo,
    into: Path,
    parts: list[str],
    limits: Limits,
    result: Extraction,
) -> None:
    if result.bytes + member.size > limits.total_bytes:
        raise _Stop(f"more than {limits.total_bytes} bytes in all; stopped at {printable(member.name)}")
    _make_folder(into, parts[:-1], result)
    path = into.joinpath(*parts)
    source = tar.extractfile(member)
    digest = _written(source, path, member)
    result.files += 1
    result.entries += 1
    result.bytes += member.size
    result.sums["/".join(parts)] = digest


def _written(source: BinaryIO, path: Path, member: tarfile.TarInfo) -> str:
    """Copies one member to a new file; returns its SHA-256. A half file is not left behind."""
    digest, left = hashlib.sha256(), member.size
    with _created(path) as file:
        try:
            while left:
                block = source.read(min(CHUNK, left))
                if not block:
                    raise EOFError(f"{printable(member.name)} is cut")
                digest.update(block)
                left -= len(block)
                _write(file, block, path)
        except BaseException:
            file.close()
            path.unlink()
            raise
    path.chmod(0o755 if member.mode & 0o111 else 0o644)
    with suppress(OSError, OverflowError, ValueError):
        os.utime(path, (member.mtime, member.mtime))
    return digest.hexdigest()


def _created(path: Path) -> BinaryIO:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    try:
        return os.fdopen(os.open(path, flags, 0o600), "wb")
    except FileExistsError:
        raise _Skip("the name comes twice") from None
    except OSError as error:
        raise _host_error(error, path) from error


def _write(file: BinaryIO, block: bytes, path: Path) -> None:
    try:
        file.write(block)
    except OSError as error:
        raise _host_error(error, path) from error


def _host_error(error: OSError, path: Path) -> Exception:
    if error.errno in (errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL):
        return _Skip("name cannot be written on this host")
    return LabError(
        f"{printable(str(path))} cannot be written: {error.strerror}",
        "make room (`df -h .`), then `lab collect` again: it starts afresh",
        NOT_READY,
    )


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {printable(str(error))}"
