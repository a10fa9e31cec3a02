"""HOST: doctor's look at where an image would come from: is it cached, is there a mirror, does it answer."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from labkit.config import Lab
from labkit.surroundings import Answer

SUITE = "bookworm"
APT_HELPER = Path("/usr/lib/apt/apt-helper")
TARGETS = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"]
ANSWER_SECONDS = 5  # for one address of the mirror
GIVE_UP_SECONDS = 20
ANOTHER = "set lab_image_mirror in guest.yml to a Debian mirror you can reach"


def check(lab: Lab) -> Answer:
    """Where the next image comes from; a mirror is asked for one small file, with apt's own means."""
    if list(lab.images_dir.glob(f"{lab.guest['lab_image']}-*/SHA256SUMS")):
        return "ok", "the image is in the cache", ""
    mirror = lab.guest["lab_image_mirror"] or _of_this_host()
    if not mirror:
        cure = f"{ANOTHER} (or `apt-get update` first)"
        return "fail", f"this host's package sources have no Debian 12 ({SUITE})", cure
    if not APT_HELPER.is_file():
        return "warn", f"{mirror} can't be asked: {APT_HELPER} is missing", "`apt-get install apt` brings it"
    if reason := _unreachable(mirror):
        cure = f"mend this host's network or proxy (`apt-get update` shows more), or {ANOTHER}"
        return "fail", f"{mirror} does not answer: {reason}", cure
    return "ok", f"{mirror} answers", ""


def _of_this_host() -> str:
    command = [*TARGETS, "Origin: Debian"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    pairs = [line.split() for line in answer.splitlines()]
    return next((pair[0] for pair in pairs if pair[1:] == [SUITE]), "")


def _unreachable(mirror: str) -> str:
    """Why the mirror does not give the suite's first file, in apt's words; empty when it does."""
    patience = [f"-oAcquire::{way}::Timeout={ANSWER_SECONDS}" for way in ("http", "https")]
    options = ["-oAcquire::Retries=0", "-oAPT::Sandbox::User=root", *patience]
    with tempfile.TemporaryDirectory(prefix="lab-doctor-") as folder:
        file = f"{mirror.rstrip('/')}/dists/{SUITE}/InRelease"
        command = [str(APT_HELPER), *options, "download-file", file, f"{folder}/InRelease"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=GIVE_UP_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return f"nothing within {GIVE_UP_SECONDS} s"
    if done.returncode == 0:
        return ""
    failed = [line for line in done.stderr.splitlines() if line.startswith("E: ")]
    return " ".join((failed or ["no reason given"])[0].removeprefix("E: ").split())[:300]
