"""GUEST: tries to destroy what is in the workspace, as the Worker and as root; prints JSON of what is left.

    sudo -n python3 - /sandbox worker /opt/lab-harness < destroyers.py

Runs as root and acts as the Worker by itself. Needs the harness's code, which a session brings: its own sweep
is the "end of a step". Of what it plants in notes/ and scripts/ nothing may be lost; the rest must come back
byte-exact from the generation made before. Exit code 1 when one of the two does not hold. A fourth argument,
names with commas between, tries these only; `limits` what is known to lose them, `all` everything else.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

# {f} a note, {s} a script, {d} notes/, {p} a git repository in scripts/, {w} the workspace, {t} a folder
# outside, {x} a decoy in it.
DESTROYERS = {
    "rm": "rm -f {f}",
    "rm of a folder": "rm -rf {d} {p}",
    "unlink": "unlink {f}",
    "shred": "shred {f}",
    "shred and remove": "shred -u {f}",
    "python os.remove": "python3 -c 'import os; os.remove(\"{f}\")'",
    "python rmtree": "python3 -c 'import shutil; shutil.rmtree(\"{d}\", ignore_errors=True)'",
    "python open for writing": 'python3 -c \'open("{f}", "w").write("x")\'',
    "python write in place": 'python3 -c \'open("{f}", "r+").write("x")\'',
    "python os.truncate": "python3 -c 'import os; os.truncate(\"{f}\", 0)'",
    "python os.replace": 'python3 -c \'import os; os.replace("{x}", "{f}")\'',
    "python mmap": 'python3 -c \'import mmap; f = open("{f}", "r+b"); mmap.mmap(f.fileno(), 0)[0] = 0\'',
    "mv over": "mv -f {x} {f}",
    "mv away": "mv -f {f} {s} {t}",
    "mv of the folder": "mv {d} {t}/gone",
    "rename of the folder": "mv {d} {d}_old",
    "rename of a folder below": "mv {p} {p}_old",
    "rename of the workspace": "mv {w} {w}_old",
    "cp over": "cp -f {x} {f}",
    "cp with removal": "cp --remove-destination {x} {f}",
    "redirection": "echo x >{f}",
    "empty redirection": ": >{f}",
    "forced redirection": "set -C; : >|{f}",
    "truncate": "truncate -s 0 {f}",
    "truncate by a byte": "truncate -s -1 {f}",
    "sed -i": "sed -i s/[a-z]/X/g {f}",
    "perl -i": "perl -pi -e 's/l/x/' {f}",
    "perl unlink": 'perl -e \'unlink "{f}", "{s}"\'',
    "awk redirection": 'awk \'BEGIN {{ print "x" > "{f}" }}\'',
    "tee": "echo x | tee {f}",
    "dd": "dd if=/dev/zero of={f} bs=1k count=1",
    "dd in place": "dd if=/dev/zero of={f} bs=1 count=4 conv=notrunc",
    "git clean": "git -C {p} clean -fdx",
    "git checkout over": "git -C {p} checkout -f HEAD~1",
    "git reset": "git -C {p} reset --hard HEAD~1",
    "git stash": "git -C {p} stash -u",
    "git rm": "git -C {p} rm -f a.txt",
    "rsync --delete": "rsync -a --delete {t}/empty/ {d}/",
    "rsync over": "rsync -a --ignore-times {x} {f}",
    "rsync in place": "rsync -a --inplace --ignore-times {x} {f}",
    "find -delete": "find {d} {p} -delete",
    "find -exec": "find {d} -type f -exec rm -f {{}} +",
    "tar over": "tar -C {t}/tar -cf {t}/x.tar . && tar -C {d} -xf {t}/x.tar",
    "tar overwrite": "tar -C {t}/tar -cf {t}/x.tar . && tar -C {d} --overwrite -xf {t}/x.tar",
    "tar --remove-files": "tar -C {w} -cf {t}/y.tar --remove-files notes scripts",
    "install": "install {x} {f}",
    "ln -f": "ln -f {x} {f}",
    "ln -sf": "ln -sf /dev/null {f}",
    "ed": "printf '1d\\nw\\nq\\n' | ed -s {f}",
    "ex": "ex -s -c '%d|w!|q' {f} </dev/null",
    "patch": "printf -- '--- n\\n+++ n\\n@@ -1 +1 @@\\n-first line\\n+other\\n' | patch -f {f}",
    "gzip": "gzip -f {f}",
    "xz": "xz -f {f}",
    "zip -m": "zip -qm {t}/z.zip {f}",
    "cpio": "cd {t}/tar && find . | cpio -pdu {d}",
    "sort -o": "sort -r -o {f} {f}",
    "curl -o": "curl -s -o {f} file://{x}",
    "mkfs": "mke2fs -F -q {f} 64",
    "mkfs on a loop": "l=$(losetup -f --show {f}) && mkfs.ext2 -F -q $l; losetup -d $l",
    "mkswap": "mkswap -f {f}",
    "fallocate punch": "fallocate -p -o 0 -l 4096 {f}",
    "fallocate zero": "fallocate -z -o 0 -l 4096 {f}",
    "chmod and remove": "chmod -R 777 {d}; rm -rf {d}",
    "chown and write": "chown 65534 {f}; : >{f}",
    "new owner of the folder": "chmod 0 {d} {p}",
    "tmpfs over the folder": "mount -t tmpfs none {d} && rm -rf {d}/*",
    "bind mount over": "mount --bind {t}/empty {d} && rm -rf {d}/*",
    "overlay over": "mount -t overlay o -o lowerdir={d},upperdir={t}/up,workdir={t}/work {d} && rm -rf {d}/*",
    "remount below and remove": "mount --bind {w} {t}/empty && rm -rf {t}/empty/notes {t}/empty/scripts",
    "namespace": "unshare -m rm -rf {d} {p}",
    "tools and all": "find {w} -mindepth 1 -delete",
    "everything truncated": "find {w} -type f -exec truncate -s 0 {{}} +",
}
# What root can still do. Listed, so that nobody believes more than is true.
LIMITS = {"chattr -a by root": "chattr -R -f -a {w}; python3 -c 'import shutil; shutil.rmtree(\"{d}\")'"}
SAFE = ("notes", "scripts")


class Range:
    """A workspace with planted files, a generation of it, and the attacks on it."""

    def __init__(self, sandbox: Path, user: str, code: Path) -> None:
        self.sandbox, self.user, self.code = sandbox, user, code
        self.workspace = sandbox / "workspace"
        self.outside = Path(tempfile.mkdtemp(prefix="destroyers-"))
        self.generation = self.outside / "generation"
        self.decoys = sandbox / "tmp" / self.outside.name  # on the file system of the workspace: rename works
        self.names: dict[str, str] = {}
        self.planted: dict[str, Content] = {}

    def prepare(self) -> None:
        """Plant, end the step, back up. What earlier attacks left behind is overwritten where it can be."""
        self.outside.chmod(0o755)
        self.names = {
            "f": f"{self.workspace}/notes/destroyers_note.md",
            "s": f"{self.workspace}/scripts/destroyers.sh",
            "d": f"{self.workspace}/notes",
            "p": f"{self.workspace}/scripts/destroyers_repository",
            "w": str(self.workspace),
            "t": str(self.decoys),
            "x": f"{self.decoys}/decoy",
        }
        self.act("mkdir -p {t} 2>/dev/null", "root")
        self.act("chown -R " + self.user + " {t}", "root")
        self.act(PLANT, self.user)
        self.end_step()
        self.act(f"rsync -a --exclude=.git {self.workspace}/ {self.generation}/", "root")
        self.planted = inventory(self.workspace)

    def end_step(self) -> None:
        """The harness's own sweep."""
        program = (
            "import sys, pathlib; from harness.sweep import Sweep;"
            "from harness.append_only import protect_folder;"
            "box = pathlib.Path(sys.argv[1]); protect_folder(box);"
            "found = Sweep(box / 'workspace', True).run(60);"
            "sys.exit(found.problem or (str(found.written) if found.written else 0))"
        )
        environment = os.environ | {"PYTHONPATH": str(self.code)}
        words = [sys.executable, "-c", program, str(self.sandbox)]
        subprocess.run(words, env=environment, check=True, timeout=120)

    def act(self, line: str, who: str) -> int:
        """Run a line in the shell; its exit code. The decoys are made anew each time."""
        line = line.format(**self.names)
        run = {} if who == "root" else {"user": who, "group": group_of(who), "extra_groups": []}
        words = ["/bin/bash", "-c", line]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        home = {**os.environ, "HOME": self.names["t"], "GIT_CONFIG_GLOBAL": f"{self.names['t']}/.gitconfig"}
        try:
            return subprocess.run(words, cwd="/", env=home, timeout=60, **quiet, **run).returncode
        except subprocess.TimeoutExpired:
            return -1

    def attack(self, name: str, line: str, who: str) -> dict:
        code = self.act(DECOYS + line, who)
        self.unmount()
        lost = [path for path, was in self.planted.items() if not was.is_in(self.workspace)]
        hit = [path for path in lost if not path.startswith(SAFE)]
        for path in hit:
            target = f"{self.workspace}/{path}"
            self.act(f"mkdir -p $(dirname {target}); cp -a {self.generation}/{path} {target}", "root")
        exact = inventory(self.generation) == self.planted and all(
            self.planted[path].is_in(self.workspace) for path in hit
        )
        lost = [path for path in lost if path not in hit]
        return {"what": name, "as": who, "exit": code, "lost": lost, "restored": len(hit), "exact": exact}

    def unmount(self) -> None:
        """What was mounted over something only hides it."""
        places = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for place in reversed(places):
            if place.startswith((f"{self.workspace}/", f"{self.decoys}/")):
                subprocess.run(["umount", "-l", place], check=False)


class Content(tuple):
    """(size, sha256) of a file as it was, with its path."""

    def is_in(self, top: Path) -> bool:
        """There with at least the bytes it had, in the same order from the start."""
        path, size, digest = self
        try:
            with open(top / path, "rb") as file:
                start = file.read(size)
        except OSError:
            return False
        return len(start) == size and hashlib.sha256(start).hexdigest() == digest


PLANT = """
umask 022; cd {w}; git config --global user.email a@b; git config --global user.name worker
git config --global --add safe.directory '*'
[ -e {f} ] || for n in $(seq 30); do echo "first line"; seq 1000; done >{f}
[ -e {s} ] || printf '#!/bin/sh\\necho script\\n' >{s}
[ -e notes/destroyers_deep ] || {{ mkdir -p notes/destroyers_deep/er
    echo deep >notes/destroyers_deep/er/x.md; }}
[ -e {p} ] || {{ git init -q {p}; cd {p}; echo one >a.txt; git add a.txt; git commit -qm one; mkdir sub
    echo two >b.txt; echo sub >sub/c.txt; git add .; git commit -qm two; echo loose >loose.txt; cd {w}; }}
mkdir -p tools/destroyers; seq 5000 >tools/destroyers/data; echo top >destroyers_top.txt
"""
DECOYS = """
mkdir -p {t}/empty {t}/tar {t}/up {t}/work; echo decoy >{x}; cp {x} {t}/tar/destroyers_note.md
"""


def inventory(top: Path) -> dict[str, Content]:
    """What was planted: files whose path holds 'destroyers', git's own excepted."""
    found = {}
    for folder, folders, files in os.walk(top):
        folders[:] = [name for name in folders if name != ".git"]
        for name in files:
            path = Path(folder, name)
            relative = str(path.relative_to(top))
            if "destroyers" in relative and path.is_file() and not path.is_symlink():
                raw = path.read_bytes()
                found[relative] = Content((relative, len(raw), hashlib.sha256(raw).hexdigest()))
    return found


def group_of(user: str) -> int:
    import pwd

    return pwd.getpwnam(user).pw_gid


def main(sandbox: str, user: str, code: str, only: str = "") -> int:
    ground = Range(Path(sandbox), user, Path(code))
    ground.prepare()
    is_all = only in ("", "all")
    chosen = {name: line for name, line in DESTROYERS.items() if is_all or name in only.split(",")}
    attempts = [(name, line, who) for who in (user, "root") for name, line in chosen.items()]
    results = [ground.attack(*attempt) for attempt in attempts]
    held = bool(results) and all(not result["lost"] and result["exact"] for result in results)
    limits = [ground.attack(name, line, "root") for name, line in LIMITS.items() if only in ("", "limits")]
    places = f"{ground.outside} {ground.decoys}"
    ground.act(f"cd /; rm=/bin/rm.distrib; [ -x $rm ] || rm=/bin/rm; $rm -rf {places}", "root")
    print(
        json.dumps({"held": held, "attempts": len(results), "results": results, "limits": limits}, indent=1)
    )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
