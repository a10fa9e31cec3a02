#!/bin/sh
# GUEST: runs as the Worker. Ten ordinary packages are installed one by one with the safeguards on (dpkg and
# maintainer scripts call rm), and one is purged. Names may be given as arguments. Ends with "ok: ...".
set -eu

fail() {
    printf 'ten_apt_installs: %s\n' "$1" >&2
    exit 1
}

# Small ones; cron, nano, ed and logrotate come with maintainer scripts, users, alternatives and units.
DEFAULT_PACKAGES="m4 autoconf nano cron logrotate ed pv hello dos2unix time"

main() {
    [ $# -gt 0 ] || set -- $DEFAULT_PACKAGES
    log=/tmp/ten-apt-installs-$$.log
    sudo -n apt-get update -q >"$log" 2>&1 || fail "apt-get update fails: $(tail -n 3 "$log")"
    for package in "$@"; do
        sudo -n apt-get install -y -q --no-install-recommends "$package" >"$log" 2>&1 \
            || fail "apt-get install $package fails: $(tail -n 5 "$log")"
        ! grep ': refused:' "$log" >&2 || fail "a removal was refused while $package was installed"
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package")" = installed ] || fail "$package is not installed"
    done
    sudo -n apt-get purge -y -q hello >"$log" 2>&1 || fail "apt-get purge hello fails: $(tail -n 5 "$log")"
    [ -z "$(dpkg --audit)" ] || fail "dpkg finds broken packages: $(dpkg --audit | head -n 1)"
    rm "$log"
    echo "ok: $# packages were installed and one was purged"
}

main "$@" </dev/null
