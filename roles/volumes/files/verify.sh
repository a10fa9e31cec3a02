# GUEST: runs as the Worker and tries to read and write telemetry, mirror and backups. `sh -s -- SANDBOX`.
set -u

sandbox=$1

fail() {
    printf 'volumes: %s\n' "$1" >&2
    exit 1
}

keeps_out() {
    if ls "$1" >/dev/null 2>&1; then fail "$(id -un) can read $1"; fi
    if touch "$1/verify" 2>/dev/null; then fail "$(id -un) can write in $1"; fi
    if mv -T "$1" "$1.moved" 2>/dev/null; then fail "$(id -un) can move $1 away"; fi
    [ "$(stat -c '%U %a' "$1")" = 'root 700' ] || fail "$1 is not root's alone"
}

own_file_system() {
    mountpoint -q "$1" || fail "nothing is mounted at $1: it shares the system disk with the workspace"
    findmnt --fstab "$1" >/dev/null || fail "$1 is not mounted at the next boot (/etc/fstab)"
    case $(findmnt -nro OPTIONS "$1") in rw*) ;; *) fail "$1 is read-only" ;; esac
}

disk_of() {
    lsblk -nro PKNAME "$(findmnt -nro SOURCE -T "$1")"
}

main() {
    for name in telemetry mirror backups; do
        keeps_out "$sandbox/$name"
        own_file_system "$sandbox/$name"
    done
    devices=$(stat -c %d "$sandbox/workspace" "$sandbox/telemetry" "$sandbox/mirror" "$sandbox/backups" | sort -u)
    [ "$(echo "$devices" | wc -l)" = 4 ] || fail "workspace, telemetry, mirror and backups share a file system"
    [ "$(disk_of "$sandbox/mirror")" != "$(disk_of "$sandbox/workspace")" ] || fail "the mirror is on the system disk"
    echo "telemetry, mirror and backups are file systems of their own, closed to $(id -un)"
}

main </dev/null
