"""HOST: what a build stands on: a cached image that still is what was made, and room on the disk."""

from __future__ import annotations

import shutil
from pathlib import Path

from labkit import disks
from labkit.config import Lab
from labkit.errors import EVIDENCE, LabError

SUMS = "SHA256SUMS"
BUILD_NEEDS_GB = 6.0  # image 1, disks and set 2 to 3, a second set while the old one is there

MEND_BUNDLE = "correct it in guest.yml, or leave it empty"


def demand_sound(lab: Lab) -> None:
    """LabError (evidence) where a cached image is not what its SHA256SUMS says. Reads it whole: seconds."""
    for sums in sorted(lab.images_dir.glob(f"{lab.guest['lab_image']}-*/{SUMS}")):
        for name in _differing(sums):
            raise LabError(
                f"the cached image {sums.parent} is damaged: {name} is not what {SUMS} says",
                f"`sudo mv {sums.parent} {sums.parent}.damaged`, then `lab up` makes it anew",
                EVIDENCE,
            )


def demand_room(lab: Lab) -> None:
    """LabError where a build would fill the disk: half a guest is then all there is."""
    folder = lab.state_dir
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free / 2**30
    if free < BUILD_NEEDS_GB:
        raise LabError(
            f"{free:.1f} GiB are free at {folder}, and building a guest takes about {BUILD_NEEDS_GB:.0f}",
            "free some (`lab gc` shows what could go), or set lab_state_dir to a larger disk in guest.yml",
        )


def demand_bundle(lab: Lab) -> None:
    """LabError where the certificates that the guest shall trust too can't be read: it is built by then."""
    path = lab.guest["lab_host_ca_bundle"]
    try:
        whole = not path or b"-----BEGIN CERTIFICATE-----" in Path(path).read_bytes()
    except OSError as error:
        raise LabError(f"lab_host_ca_bundle can't be read: {path}: {error.strerror}", MEND_BUNDLE) from error
    if not whole:
        raise LabError(
            f"lab_host_ca_bundle names {path}, which holds no certificate in PEM form", MEND_BUNDLE
        )


def _differing(sums: Path) -> list[str]:
    """Files that are gone or have another hash."""
    lines = [line.split(maxsplit=1) for line in sums.read_text(errors="replace").splitlines()]
    wanted = {words[1].lstrip("*"): words[0] for words in lines if len(words) == 2}
    there = {name: (sums.parent / name).is_file() for name in wanted}
    return [name for name in wanted if not there[name] or disks.sha256(sums.parent / name) != wanted[name]]
