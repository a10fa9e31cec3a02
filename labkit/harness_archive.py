"""HOST: builds the one archive that goes into the guest: harness/ and its packages."""

from __future__ import annotations

import compileall
import hashlib
import os
import py_compile
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from labkit.config import REPO, Lab
from labkit.errors import LabError

GUEST_PYTHON = {"debian-12": "3.11"}
PLATFORM = "x86_64-manylinux_2_28"
HARNESS = REPO / "harness"


def build(lab: Lab) -> Path:
    """The archive's path; built anew only when the harness, its lock or the guest's Python changed.

    Raises LabError when the packages can't be fetched.
    """
    python = GUEST_PYTHON[lab.guest["lab_image"]]
    target = lab.state_dir / "harness" / f"{_content_address(python)}.tar.gz"
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lab-harness-") as folder:
        _install_packages(Path(folder) / "site-packages", python)
        shutil.copytree(HARNESS, Path(folder) / "harness", ignore=shutil.ignore_patterns("__pycache__"))
        _compile(Path(folder), python)
        _pack(Path(folder), target)
    return target


def current_names() -> set[str]:
    """File names of the archives that today's harness would be shipped in, one an image's Python."""
    return {f"{_content_address(python)}.tar.gz" for python in GUEST_PYTHON.values()}


def _pack(folder: Path, target: Path) -> None:
    """Under a name of its own first: two labs of one host may build the same archive at once."""
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".building-")
    partial = Path(name)
    try:
        with (
            os.fdopen(descriptor, "wb") as file,
            tarfile.open(fileobj=file, mode="w:gz", compresslevel=3) as archive,
        ):
            for part in ("harness", "site-packages"):
                archive.add(folder / part, part, filter=_owned_by_root)
        partial.chmod(0o644)
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def source_files() -> list[Path]:
    """What of harness/ goes into the guest."""
    return sorted(path for path in HARNESS.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def _content_address(python: str) -> str:
    digest = hashlib.sha256(f"{python} {sys.version_info[:2]} {PLATFORM}".encode())
    for path in source_files():
        digest.update(str(path.relative_to(HARNESS)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _install_packages(target: Path, python: str) -> None:
    import uv

    command = [uv.find_uv_bin(), "pip", "install", "--quiet", "--target", str(target)]
    command += ["--python-version", python, "--python-platform", PLATFORM, "--only-binary", ":all:"]
    command += ["--require-hashes", "-r", str(HARNESS / "requirements.lock")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise LabError(
            f"can't fetch the harness's packages: {done.stderr.strip()[-600:]}",
            "check that this host reaches its Python package index, then repeat",
        )


def _compile(folder: Path, python: str) -> None:
    """Byte code made here spares the guest seconds at each start; only valid for the same Python."""
    if python == f"{sys.version_info.major}.{sys.version_info.minor}":
        compileall.compile_dir(
            folder,
            quiet=2,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            stripdir=str(folder),
        )


def _owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry
