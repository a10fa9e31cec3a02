"""HOST: disk files: overlays, flat copies, the cloud-init seed, hashes."""

from __future__ import annotations

import contextlib
import hashlib
import io
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

from labkit.errors import LabError

# The disks the guest writes: target in the domain XML, file name, and what it holds.
WRITABLE = {"vda": "system.qcow2", "vdb": "data.qcow2"}
# What a direct-boot guest needs besides, read only.
FIXED = ("seed.iso", "vmlinuz", "initrd")
CHUNK_BYTES = 1 << 20


def qemu_img(*arguments: str | Path) -> str:
    """Run qemu-img; LabError (not ready) with its own words when it fails."""
    try:
        done = subprocess.run(
            ["qemu-img", *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError as error:
        raise LabError("qemu-img is not installed", "`lab doctor` names the package") from error
    if done.returncode != 0:
        raise LabError(
            f"qemu-img {arguments[0]} failed: {done.stderr.strip()}", "`df -h` shows whether the disk is full"
        )
    return done.stdout


def make_overlay(overlay: Path, frozen: Path) -> None:
    """A new, empty overlay on `frozen`; an old file of that name is replaced."""
    overlay.unlink(missing_ok=True)
    qemu_img("create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", frozen, overlay)
    overlay.chmod(0o600)  # the run's token and the agents' files are in it; libvirt gives it to QEMU


def flatten(source: Path, target: Path) -> None:
    """One compressed file that needs no backing file, with what `source` and all below it hold."""
    compressed = ("-c", "-o", "compression_type=zstd", "-m", "4", "-W")  # in any order, four at a time
    qemu_img("convert", "-f", "qcow2", "-O", "qcow2", *compressed, source, target)


def make_empty(path: Path, gigabytes: int) -> None:
    """A thin, empty disk of that size in GiB."""
    path.unlink(missing_ok=True)
    qemu_img("create", "-q", "-f", "qcow2", path, f"{gigabytes}G")
    path.chmod(0o600)


def copy(source: Path, target: Path) -> None:
    """Copy a file's bytes, for root alone, replacing `target` only when complete."""
    with _whole_or_nothing(target) as partial:
        shutil.copyfile(source, partial)


def sha256(path: Path, go: threading.Event | None = None) -> str:
    """Hex SHA-256 of a file. go: reading pauses while it is not set."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            if go is not None:
                go.wait()
    return digest.hexdigest()


def write_seed(path: Path, files: dict[str, str]) -> None:
    """A cloud-init NoCloud seed: an ISO labelled `cidata` with these files at its top."""
    import pycdlib

    iso = pycdlib.PyCdlib()
    iso.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident="cidata")
    for number, (name, text) in enumerate(sorted(files.items())):
        data = text.encode()
        iso.add_fp(io.BytesIO(data), len(data), f"/FILE{number}.;1", rr_name=name, joliet_path=f"/{name}")
    with _whole_or_nothing(path) as partial:
        iso.write(str(partial))
        iso.close()


@contextlib.contextmanager
def _whole_or_nothing(target: Path) -> Iterator[Path]:
    """A private file beside `target` to write into; takes its place when done, goes away when that fails."""
    partial = target.with_name(target.name + ".partial")
    partial.unlink(missing_ok=True)
    partial.touch(mode=0o600)
    try:
        yield partial
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
