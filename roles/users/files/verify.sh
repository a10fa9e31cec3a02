# GUEST: runs as the Worker and uses its rights. Says in a sentence what does not hold. `sh -s -- TMPDIR UNIT...`.
set -u

fail() {
    printf 'users: %s\n' "$1" >&2
    exit 1
}

main() {
    tmpdir=$1
    shift
    [ "$(sudo -n id -u)" = 0 ] || fail "sudo asks $(id -un) for a password"
    [ "$(sudo -n printenv TMPDIR)" = "$tmpdir" ] || fail "commands under sudo have another TMPDIR than $tmpdir"
    [ "$(sudo -n printenv DEBIAN_FRONTEND)" = noninteractive ] || fail "a package installed with sudo may ask"
    case $(sudo -n passwd -S "$(id -un)" | cut -d' ' -f2) in L*) ;; *) fail "$(id -un) has a password" ;; esac
    [ -w "$HOME" ] && [ "$HOME" != / ] || fail "$(id -un) has no home of its own"
    [ "$(getent passwd "$(id -un)" | cut -d: -f7)" = /bin/bash ] || fail "the shell of $(id -un) is not bash"
    getent hosts "$(hostname)" | grep -q '^127\.\|^::1\|^fe80' || fail "$(hostname) is not in /etc/hosts: sudo waits"
    for unit do
        case $(systemctl is-active "$unit") in active | activating) fail "$unit is running" ;; esac
        [ "$(systemctl is-enabled "$unit" 2>/dev/null)" = masked ] || fail "$unit is not masked"
    done
    eval "$(apt-config shell wait DPkg::Lock::Timeout)"
    [ "${wait:-0}" -gt 0 ] || fail "apt gives up at once when its lock is taken"
    echo "$(id -un) is root by sudo, has TMPDIR there, and no package asks or competes for the lock"
}

main "$@" </dev/null
