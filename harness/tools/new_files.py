"""GUEST: writes notes and scripts that can only be new: no overwriting, plain names, a registry row each."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from harness.append_only import Unsupported, protect
from harness.telemetry.recorder import Recorder
from harness.text import clean

_PLAIN = re.compile(r"[^/\\\x00-\x1f\x7f]{1,120}")
_PACKED = re.compile(r"(?i)(?<=[^.])\.tar\.\w{1,5}$")  # an ending of two parts
_VERSION = re.compile(r"_v(\d{1,6})$")
_MASTER = re.compile(r"master(_v\d+)?\.md")


class NotWritten(Exception):
    """Why the file was not written, and what to do instead."""


@dataclass(frozen=True)
class Folder:
    """A folder of the workspace: its place, its name there, what it holds, the mode of a new file."""

    path: Path
    name: str
    file_type: str
    mode: int


def write_new(
    folder: Folder, name: str, content: str, recorder: Recorder, owner: tuple[int, int] | None
) -> str:
    """Create folder/name with content, durable. Returns its path in the workspace. Raises NotWritten."""
    name = name.removeprefix(f"{folder.name}/")
    if clean(name) != name:  # under the name that is told here it could not be found again
        raise NotWritten(f"{clean(name)[:80]!r} holds invisible characters; use a name without them")
    if not _PLAIN.fullmatch(name) or name.startswith(".") or len(name.encode()) > 240:
        raise NotWritten(
            f"{name[:80]!r} is not a plain file name: no folders, no leading dot, at most 120 characters"
        )
    raw = content.encode("utf-8", errors="replace")
    try:
        _create(folder, name, raw, owner)
    except FileExistsError:
        raise NotWritten(
            f"{folder.name}/{name} exists and nothing is ever overwritten. "
            f"The next free version is {next_free(folder.path, name)}"
        ) from None
    except OSError as error:
        raise NotWritten(f"{folder.name}/{name} could not be written: {error.strerror}") from error
    path = f"{folder.name}/{name}"
    recorder.register(path, file_type(folder, name), version(name))
    return path


def _create(folder: Folder, name: str, raw: bytes, owner: tuple[int, int] | None) -> None:
    """The folder belongs to the Worker, so neither it nor the file may be a link to elsewhere."""
    where = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        handle = os.open(name, flags, folder.mode, dir_fd=where)
        try:
            _fill(handle, folder.mode, raw, owner)
        except OSError:
            with contextlib.suppress(OSError):  # a half note, or half a report, must not pass for a whole one
                os.ftruncate(handle, 0)
            raise
        finally:
            os.close(handle)
    finally:
        os.close(where)


def _fill(handle: int, mode: int, raw: bytes, owner: tuple[int, int] | None) -> None:
    os.fchmod(handle, mode)
    if owner:
        os.fchown(handle, *owner)
    rest = memoryview(raw)
    while rest:  # not through a buffer: at its end it would write once more what could not be written
        rest = rest[os.write(handle, rest) :]
    if owner:  # natively, without a change of user, files stay removable
        with contextlib.suppress(Unsupported):  # said once, by the sweep after the step
            protect(handle)
    os.fsync(handle)


def version(name: str) -> int:
    found = _VERSION.search(_parts(name)[0])
    return int(found.group(1)) if found else 1


def next_free(folder: Path, name: str) -> str:
    """x.md -> x_v2.md -> x_v3.md: the first that does not exist."""
    stem, ending = _parts(name)
    stem, number = _VERSION.sub("", stem), version(name)
    while True:
        number += 1
        candidate = f"{stem}_v{number}{ending}"
        if not os.path.lexists(folder / candidate):
            return candidate


def _parts(name: str) -> tuple[str, str]:
    """What a version number follows, and what it stands before."""
    packed = _PACKED.search(name)
    ending = packed.group(0) if packed else Path(name).suffix
    return name.removesuffix(ending), ending


def file_type(folder: Folder, name: str) -> str:
    is_master = folder.file_type == "SCRATCHPAD" and _MASTER.fullmatch(name)
    return "MASTER_SUMMARY" if is_master else folder.file_type


def notes_folder(path: Path) -> Folder:
    return Folder(path, "notes", "SCRATCHPAD", 0o644)


def scripts_folder(path: Path) -> Folder:
    return Folder(path, "scripts", "SCRIPT", 0o755)
