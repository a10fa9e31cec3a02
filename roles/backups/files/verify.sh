# GUEST: runs as the Worker: a note is backed up, then overwritten; the generation must not follow.
# `sh -s -- SOURCE DEST`. Leaves no note and no generation behind.
set -u

source=$1 dest=$2
note=$source/notes/.backups-verify-$$
generation=''

fail() {
    printf 'backups: %s\n' "$1" >&2
    clean_up
    exit 1
}

clean_up() {
    for real in /bin/rm.distrib /bin/rm; do
        [ -x $real ] && break
    done
    sudo -n $real -f -- "$note"
    [ -z "$generation" ] || sudo -n $real -rf -- "$generation"
}

main() {
    if (/usr/local/sbin/lab-backup) 2>/dev/null; then fail "$(id -un) can run lab-backup without sudo"; fi
    if ls "$dest" >/dev/null 2>&1; then fail "$(id -un) can read $dest"; fi
    echo first >"$note" || fail "$note cannot be written"
    generation=$(sudo -n /usr/local/sbin/lab-backup) || fail "lab-backup fails"
    case $generation in "$dest"/gen-[0-9]*) ;; *) fail "lab-backup printed no generation but: $generation" ;; esac
    echo second >"$note"   # in place: a hard link to the workspace would follow
    saved=$(sudo -n cat "$generation/notes/${note##*/}")
    [ "$saved" = first ] || fail "the generation holds '$saved' where the note said 'first' when it was made"
    if (echo x >"$generation/notes/${note##*/}") 2>/dev/null; then fail "$(id -un) can write in $generation"; fi
    clean_up
    echo "a generation holds what the workspace was, and $(id -un) cannot reach it"
}

main </dev/null
