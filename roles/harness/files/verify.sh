# GUEST: runs as the Worker: it must see neither settings nor log, and change no code; the harness must load.
# `sh -s -- PYTHON`.
set -u

fail() {
    printf 'harness: %s\n' "$1" >&2
    exit 1
}

is() {
    found=$(sudo -n stat -c '%U %a' "$1" 2>&1)
    [ "$found" = "$2" ] || fail "$1 is not $2 but: $found"
}

main() {
    is /etc/lab-harness 'root 700'
    is /etc/lab-harness/run.json 'root 600'
    is /opt/lab-harness 'root 755'
    is /opt/lab-harness.tar.gz 'root 600'
    for secret in /etc/lab-harness/run.json /var/log/lab-harness.log; do
        if cat "$secret" >/dev/null 2>&1; then fail "$(id -un) can read $secret"; fi
    done
    [ -z "$(find /opt/lab-harness -writable ! -type l -print -quit)" ] || fail "$(id -un) can change the harness"
    cd /opt/lab-harness && PYTHONPATH=$PWD:$PWD/site-packages PYTHONDONTWRITEBYTECODE=1 "$1" -c '
import importlib.util, sys
import harness
for name in ("harness.__main__", "openai"):  # looked for, not loaded: openai takes 15 s in an emulated guest
    if importlib.util.find_spec(name) is None:
        sys.exit(name + " is not in the archive")
' || fail "the harness does not load with $1"
    said=$(systemctl show -p Delegate,Slice --value lab-harness.service | tr '\n' ' ')
    case $said in *yes*lab.slice* | *lab.slice*yes*) ;; *) fail "lab-harness.service does not fit: $said" ;; esac
    echo "the harness loads, and $(id -un) can neither read its settings nor change its code"
}

main "$@" </dev/null
