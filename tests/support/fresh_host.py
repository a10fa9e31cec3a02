"""HOST: a Debian root in a folder that has nothing of ours, and commands typed in it.

Each command has namespaces of its own for mounts and processes: with its end every mount and every daemon it
started is gone; this machine's /run, /dev and libvirt are not in its sight. The network is this machine's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
SUITE = "bookworm"
CERTIFICATES = "/usr/local/share/fresh-host.crt"
CERTIFICATE_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE")
# The root's /dev has the few nodes that mmdebstrap made, so that nothing in it can chown our /dev/kvm.
ENTER = """
set -e
mount -t proc proc "$1/proc"
mount -t sysfs -o ro sysfs "$1/sys"
mount -t tmpfs -o mode=755 tmpfs "$1/run"
mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,gid=5,mode=620 devpts "$1/dev/pts"
root=$1 user=$2
shift 2
chroot "$root" setpriv --reuid="$user" --regid="$user" --init-groups env -i "$@"
"""


def bootstrap(root: Path) -> None:
    """From this host's own package sources, as roles/image/files/bootstrap-debian reads them."""
    command = ["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", "--include=ca-certificates"]
    subprocess.run([*command, SUITE, root, "-"], input=_sources(), text=True, check=True, timeout=900)
    for name in ("resolv.conf", "hosts"):
        shutil.copy(f"/etc/{name}", root / "etc" / name)
    if bundle := _certificates():
        shutil.copy(bundle, f"{root}{CERTIFICATES}")
    for user in ("anna", "ben"):
        subprocess.run(["chroot", root, "useradd", "-m", "-s", "/bin/bash", user], check=True)


def _sources() -> str:
    form = "deb $(REPO_URI) $(RELEASE) $(COMPONENT)"
    query = ["apt-get", "indextargets", "--format", form, "Created-By: Packages", "Origin: Debian"]
    lines = set(subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines())
    releases = {SUITE, f"{SUITE}-updates", f"{SUITE}-security"}
    found = sorted(line for line in lines if line.split()[2] in releases)
    assert found, f"this host's package sources have no Debian {SUITE}: `apt-get update` first"
    return "\n".join(found) + "\n"


def _certificates() -> str | None:
    return next((os.environ[name] for name in CERTIFICATE_VARIABLES if os.environ.get(name)), None)


def _pip_environment() -> dict[str, str]:
    """What pip needs to reach the same index from in there; folders of this host are not in there."""
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    kept.pop("PIP_FIND_LINKS", None)
    query = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    index = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    if index:
        kept.setdefault("PIP_INDEX_URL", index)
    if _certificates():
        kept |= dict.fromkeys(CERTIFICATE_VARIABLES, CERTIFICATES)
    return kept


@dataclass(frozen=True)
class Said:
    """out, err: what the command wrote; code: how it ended."""

    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"exit {self.code}\n--- out\n{self.out}\n--- err\n{self.err}"


class FreshHost:
    def __init__(self, root: Path) -> None:
        self.root = root

    def allow_sudo(self, user: str) -> None:
        """sudo is what such a person brings; it is not of our list."""
        done = self.typed("root", "apt-get -qq update && apt-get -qq -y install --no-install-recommends sudo")
        assert done.code == 0, done
        rule = self.root / "etc/sudoers.d" / user
        rule.write_text(f"{user} ALL=(ALL) NOPASSWD: ALL\n")
        rule.chmod(0o440)

    def clone(self, user: str) -> Path:
        """The files git knows, owned by user, in the home of user. Returns the folder as seen from inside."""
        home = Path("/root" if user == "root" else f"/home/{user}")
        folder = Path(f"{self.root}{home}/vm-lab")
        if not folder.exists():
            listing = subprocess.run(["git", "ls-files", "-z"], cwd=REPO, capture_output=True, check=True)
            for name in filter(None, listing.stdout.decode().split("\0")):
                if (REPO / name).exists():
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(REPO / name, folder / name, follow_symlinks=False)
            owner = f"{user}:{user}"
            subprocess.run(["chroot", self.root, "chown", "-R", owner, home / "vm-lab"], check=True)
        return home / "vm-lab"

    def lab(self, user: str, words: str, seconds: int = 1200) -> Said:
        """`./lab WORDS` typed by user in the clone of user."""
        return self.typed(user, f"cd {self.clone(user)} && ./lab {words}", seconds)

    def typed(self, user: str, line: str, seconds: int = 600) -> Said:
        home = "/root" if user == "root" else f"/home/{user}"
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        variables = {"HOME": home, "USER": user, "PATH": path, "TERM": "dumb", "COLUMNS": "160"}
        # What ssh brings along; a bare host has no such locale.
        variables["LANG"] = "en_US.UTF-8"
        setting = [f"{name}={value}" for name, value in (variables | _pip_environment()).items()]
        inside = [str(self.root), user, *setting, "bash", "-c", line]
        apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        done = subprocess.run(
            [*apart, "sh", "-c", ENTER, "enter", *inside],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
        return Said(done.returncode, done.stdout, done.stderr)
