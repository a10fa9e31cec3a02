#!/bin/sh
# GUEST: runs as the Worker. coreutils is reinstalled with the wrappers on; they must still stand before rm, unlink
# and shred, with the fresh programs behind them. Ends with "ok: ...".
set -eu

fail() {
    printf 'coreutils_reinstall: %s\n' "$1" >&2
    exit 1
}

path_of() {
    case $1 in rm) echo /bin/rm ;; *) echo "/usr/bin/$1" ;; esac
}

main() {
    sandbox=${1:-/sandbox}
    for program in rm unlink shred; do
        sudo -n touch -d 2001-01-01 "$(path_of $program).distrib"   # a fresh copy has the package's own date
    done
    sudo -n apt-get install --reinstall -y -q coreutils >/tmp/coreutils-reinstall.log 2>&1 \
        || fail "apt-get install --reinstall coreutils fails: $(tail -n 3 /tmp/coreutils-reinstall.log)"
    for program in rm unlink shred; do
        real=$(path_of $program).distrib
        head -n 3 "$(path_of $program)" | grep -qa 'lab-no-delete wrapper' || fail "$program lost its wrapper"
        head -c 4 "$real" | grep -qa ELF || fail "$real is not the real program"
        [ "$(date -r "$real" +%Y)" != 2001 ] || fail "$real was not brought up to date by the reinstallation"
    done
    note=$sandbox/workspace/notes/reinstall-$$.md
    echo kept >"$note"
    ! rm -f "$note" 2>/dev/null && [ -e "$note" ] || fail "rm deletes in notes/ after the reinstallation"
    rm /tmp/coreutils-reinstall.log || fail "rm fails in /tmp after the reinstallation"
    sudo -n /bin/rm.distrib "$note"
    echo "ok: coreutils was reinstalled and the wrappers stand"
}

main "$@" </dev/null
