#!/bin/sh
# GUEST: runs as the Worker below tools/. Ordinary building with the safeguards on: `git`, `pip`, `npm`, `toolchain`,
# `twenty_packages`; arguments choose, none means all. pip and npm install from local files, so that a failure is
# about removing and renaming and not about an index out of reach. Ends with "ok: ...".
set -eu

TWENTY_PACKAGES="bc bison flex gawk zip lsof patch socat whois figlet dc indent pwgen cpio ncdu datamash entr
tmux nano screen"

fail() {
    printf 'build_more: %s\n' "$1" >&2
    exit 1
}

# need PROGRAM PACKAGE...: install the packages where the program is not there.
need() {
    program=$1
    shift
    command -v "$program" >/dev/null && return
    sudo -n apt-get update -q >>"$log" 2>&1 || fail "apt-get update fails: $(tail -n 3 "$log")"
    sudo -n apt-get install -y -q --no-install-recommends "$@" >>"$log" 2>&1 \
        || fail "$* cannot be installed: $(tail -n 3 "$log")"
}

# quietly WHAT COMMAND...: it must pass, and no removal in it may be refused.
quietly() {
    what=$1
    shift
    "$@" >"$log" 2>&1 || fail "$what fails: $(tail -n 3 "$log")"
    ! grep -q 'refused:' "$log" || fail "$what was refused a removal: $(grep 'refused:' "$log" | head -n 1)"
}

build_git() {
    need git git
    quietly "git init --bare" git init -q --bare origin.git
    quietly "git clone" git clone -q origin.git clone
    cd clone
    git config user.name Worker && git config user.email worker@lab.invalid
    for version in 1 2 3; do
        echo "$version" >kept.txt && echo "$version" >"only-$version.txt"
        quietly "git add" git add .
        quietly "git commit" git commit -q -m "version $version"
    done
    quietly "git rm" git rm -q only-1.txt
    quietly "git commit" git commit -q -m "one less"
    quietly "git gc" git gc -q --prune=now
    quietly "git push" git push -q origin HEAD
    quietly "git checkout of an old version" git checkout -q HEAD~2
    [ "$(cat kept.txt)" = 2 ] || fail "git checkout did not bring the old version"
    cd ..
    quietly "a second git clone" git clone -q origin.git again
    [ ! -e again/only-1.txt ] && [ -e again/only-3.txt ] || fail "the second clone has other files"
    quietly "git fsck" git -C again fsck --strict
}

write_wheel() {
    python3 - "$1" <<'PY'
import sys, zipfile
version = sys.argv[1]
info = f"greeter-{version}.dist-info"
with zipfile.ZipFile(f"greeter-{version}-py3-none-any.whl", "w") as wheel:
    wheel.writestr("greeter/__init__.py", f"version = '{version}'\n")
    wheel.writestr(f"greeter/only_{version[0]}.py", "")
    wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: greeter\nVersion: {version}\n")
    wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    files = [*wheel.namelist(), f"{info}/RECORD"]
    wheel.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in files))
PY
}

build_pip() {
    python3 -c 'import ensurepip, venv' 2>/dev/null || need no-such-program python3-venv
    quietly "python3 -m venv" python3 -m venv environment
    for version in 1.0 2.0; do
        write_wheel $version
        quietly "pip install" environment/bin/pip install --no-index "./greeter-$version-py3-none-any.whl"
        found=$(environment/bin/python -c 'import greeter; print(greeter.version)')
        [ "$found" = $version ] || fail "pip installed greeter $found instead of $version"
    done
    [ -z "$(find environment -name only_1.py)" ] || fail "pip left a file of the old version"
    quietly "pip uninstall" environment/bin/pip uninstall -y greeter
    [ -z "$(find environment -path '*greeter*' -type f)" ] || fail "pip uninstall left files"
    quietly "python3 -m venv --clear" python3 -m venv --clear environment
}

build_npm() {
    need npm nodejs npm
    mkdir library program
    echo 'module.exports = "installed"' >library/index.js
    echo '{"name": "program", "version": "1.0.0", "private": true}' >program/package.json
    for version in 1.0.0 2.0.0; do
        echo "{\"name\": \"library\", \"version\": \"$version\"}" >library/package.json
        quietly "npm pack" npm pack --offline ./library
        quietly "npm install" npm --prefix program install --offline --no-audit --no-fund "./library-$version.tgz"
        found=$(cd program && node -p 'require("library/package.json").version')
        [ "$found" = $version ] || fail "npm installed library $found instead of $version"
    done
    quietly "npm ci" npm --prefix program ci --offline --no-audit --no-fund
    quietly "npm uninstall" npm --prefix program uninstall --offline --no-audit --no-fund library
    [ ! -e program/node_modules/library ] || fail "npm uninstall left the library"
}

build_toolchain() {
    need gcc gcc libc6-dev
    need make make
    printf '%s\n' '#include <stdio.h>' 'int twice(int n);' \
        'int main(void) { printf("%d\n", twice(21)); return 0; }' >main.c
    echo 'int twice(int n) { return 2 * n; }' >twice.c
    # .INTERMEDIATE and -save-temps make gcc and make themselves remove files.
    printf '%s\n' '.INTERMEDIATE: main.o' 'all: static shared' \
        'libtwice.a: twice.o ; rm -f $@ && ar rcs $@ twice.o' \
        'libtwice.so: twice.c ; $(CC) -pipe -fPIC -shared -o $@ twice.c' \
        'static: main.o libtwice.a ; $(CC) -o $@ main.o libtwice.a && strip $@' \
        'shared: main.o libtwice.so ; $(CC) -save-temps -o $@ main.c -L. -ltwice -Wl,-rpath,.' \
        'clean: ; rm -rf *.o *.a *.so *.i *.s static shared' >Makefile
    for round in 1 2; do
        quietly "make -j2, round $round" make -j2
        [ "$(./static)$(./shared)" = 4242 ] || fail "what was built does not run"
        quietly "make clean, round $round" make clean
        [ ! -e static ] && [ ! -e libtwice.a ] || fail "make clean left what it built"
    done
}

build_twenty_packages() {
    quietly "apt-get update" sudo -n apt-get update -q
    quietly "apt-get install of 20 packages" \
        sudo -n env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $TWENTY_PACKAGES
    for package in $TWENTY_PACKAGES; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package")" = installed ] || fail "$package is not installed"
    done
    quietly "apt-get purge" sudo -n apt-get purge -y -q figlet indent
    [ -z "$(dpkg --audit)" ] || fail "dpkg finds broken packages: $(dpkg --audit | head -n 1)"
}

main() {
    [ $# -gt 0 ] || set -- git pip npm toolchain twenty_packages
    log=$(mktemp)
    for part in "$@"; do
        place=${SANDBOX:-/sandbox}/workspace/tools/$part-$$
        mkdir -p "$place"
        cd "$place"
        "build_$part"
    done
    rm "$log" || fail "rm fails in /tmp"
    echo "ok: $* passed below ${SANDBOX:-/sandbox}/workspace/tools"
}

main "$@" </dev/null
