"""HOST: the receiving end of `lab collect`. Owns how a guest's archive becomes `runs/<run_id>`.

Everything is written under `runs/.<run_id>.partial` and renamed when complete, so a folder
without that name is whole. What was already collected whole is never overwritten.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from labkit import plain_file, record_facts, sums, tarstream, untar
from labkit.caller import give_to_caller
from labkit.errors import NOT_READY, USAGE, LabError

try:
    import fcntl
except ImportError:  # Windows has no guests to collect from; it still imports this file
    fcntl = None

DATABASES = ("run.db", "mirror.db")


def receive(
    archive: BinaryIO,
    target: Path,
    extra_files: Mapping[str, Path | bytes],
    manifest: Mapping[str, object],
    limits: untar.Limits | None = None,
) -> Path:
    """Makes `target` (`runs/<run_id>`) from the guest's tar stream and returns it.

    extra_files: what the host adds: a name in the run's folder -> bytes, a file or a folder to copy.
    manifest: facts of the caller; `run_id`, `collected_at`, `extraction`, `skipped`, `databases` and
    `prompts` are added here. `extraction.complete` is False when the archive broke off, went over a
    limit, or its run.db does not hold: the folder is kept, and a later receive puts it aside and takes
    its place.
    Raises LabError: the run is collected already (USAGE), or this host cannot write (NOT_READY).
    """
    target = Path(target)
    limits = limits or untar.Limits()
    if not target.parent.is_dir():
        target.parent.mkdir(parents=True)
        give_to_caller(target.parent)
    with _alone(target.parent):
        _refuse_to_overwrite(target)
        partial = _fresh(target)
        with _kept_only_whole(partial):
            extraction = untar.extract(archive, partial, limits)
            for name, source in extra_files.items():
                _add(partial, name, source, limits, extraction)
            _finish(partial, target.name, manifest, extraction)
            give_to_caller(partial)
        _put_aside(target)
        partial.rename(target)
    return target


def is_complete(run_dir: Path) -> bool:
    """True for a folder that `receive` finished from a whole archive with a sound run.db.

    Its list of sums must name what every collect writes; whether the files agree with it is `lab verify`'s.
    """
    try:
        manifest = json.loads(plain_file.read(run_dir / "manifest.json"))
        return bool(manifest["extraction"]["complete"]) and sums.read(run_dir).keys() >= {*sums.ALWAYS_LISTED}
    except (OSError, ValueError, KeyError, TypeError, RecursionError, LabError):
        return False


def partial_of(target: Path) -> Path:
    """Where a run is built before it gets its name."""
    return target.with_name(f".{target.name}.partial")


def _refuse_to_overwrite(target: Path) -> None:
    if not target.exists() and not target.is_symlink():
        return
    if is_complete(target):
        raise LabError(
            f"{target} is collected already and is never overwritten",
            f"`lab query --run {target.name} event_types` reads it; move it away to collect once more",
            USAGE,
        )
    if not (target / "manifest.json").is_file():
        raise LabError(
            f"{target} exists and is no collected run", "move it away, then `lab collect`", NOT_READY
        )


def _put_aside(target: Path) -> None:
    """An incomplete earlier copy is evidence too: it keeps a name of its own."""
    number = 1
    while target.exists():
        aside = target.with_name(f"{target.name}.incomplete-{number}")
        if not aside.exists():
            target.rename(aside)
        number += 1


def _fresh(target: Path) -> Path:
    partial = partial_of(target)
    try:
        if partial.is_dir() and not partial.is_symlink():
            shutil.rmtree(partial)
        partial.mkdir(mode=0o755)
    except OSError as error:
        raise LabError(
            f"{partial} cannot be made: {error.strerror}", f"look at `ls -la {partial.parent}`", NOT_READY
        ) from error
    return partial


@contextmanager
def _kept_only_whole(partial: Path) -> Iterator[None]:
    """When this host cannot write, the half copy goes: it may be what fills the disk."""
    try:
        yield
    except (OSError, LabError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, LabError):
            raise
        raise LabError(
            f"{partial} cannot be written: {error.strerror}",
            "make room (`df -h .`), then `lab collect` again: it starts afresh",
            NOT_READY,
        ) from error


def _add(
    partial: Path, name: str, source: Path | bytes, limits: untar.Limits, extraction: untar.Extraction
) -> None:
    """Copies one thing of the host's; plain files only, each cut at the limit for one file."""
    if isinstance(source, bytes):
        files = {name: source}
    elif source.is_dir():
        files = {f"{name}/{path.relative_to(source).as_posix()}": path for path in sorted(source.rglob("*"))}
    else:
        files = {name: source}
    for relative, content in files.items():
        if isinstance(content, Path) and (content.is_symlink() or not content.is_file()):
            if not content.is_dir() or content.is_symlink():
                extraction.skip(relative, "not a plain file on the host")
            continue
        path = partial / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        if _copied(content, path, limits.file_bytes):
            extraction.skip(relative, f"cut after {limits.file_bytes} bytes")
        extraction.sums[relative] = sums.file_sha256(path)


def _copied(content: Path | bytes, path: Path, limit: int) -> bool:
    """Writes at most `limit` bytes; True when there was more (a guest writes its console without end)."""
    if isinstance(content, bytes):
        path.write_bytes(content[:limit])
        return len(content) > limit
    with content.open("rb") as source, path.open("xb") as file:
        left = limit
        while left and (block := source.read(min(tarstream.CHUNK, left))):
            file.write(block)
            left -= len(block)
        return not left and bool(source.read(1))


def _finish(partial: Path, run_id: str, manifest: Mapping[str, object], extraction: untar.Extraction) -> None:
    databases = {name: record_facts.database(partial / name) for name in DATABASES}
    sound = databases["run.db"]["integrity"] == "ok"
    whole = {
        **manifest,
        "run_id": run_id,
        "collected_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "extraction": {
            "complete": sound and extraction.stopped is None,
            "stopped": extraction.stopped,
            "files": extraction.files,
            "bytes": extraction.bytes,
            "skipped_count": extraction.skipped_count,
        },
        "skipped": extraction.skipped,
        "databases": databases,
        "prompts": record_facts.prompts(partial / "run.db"),
    }
    path = partial / "manifest.json"
    path.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    listed = {**extraction.sums, "manifest.json": sums.file_sha256(path)}
    _to_disk(sums.write(partial, listed), path, *(partial / name for name in DATABASES))


def _to_disk(*paths: Path) -> None:
    for path in paths:
        if path.is_file():
            with path.open("rb+") as file:
                os.fsync(file.fileno())


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """One collect at a time into a runs/ folder: a second would remove the first one's partial folder."""
    if fcntl is None:
        yield
        return
    handle = os.open(root, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise LabError(
            f"another collect is writing into {root}", "wait for it, then `lab runs`", NOT_READY
        ) from error
    finally:
        os.close(handle)
